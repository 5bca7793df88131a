#include "text/template/template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/template/interpreter.h"
#include "text/template/parser.h"

namespace lode::text {
namespace jinja {
namespace {

using Json = nlohmann::ordered_json;

Status status_of(const Fault& fault, int line) {
  return {fault.code, fmt::format("line {}: {}", fault.line > 0 ? fault.line : line, fault.message)};
}

Value from_json(Runtime& rt, const Json& json, std::uint32_t depth) {
  rt.budget.step();
  if (depth > kValueDepthMax) exhausted(fmt::format("the input is nested more than {} deep", kValueDepthMax));
  switch (json.type()) {
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto u = json.get<std::uint64_t>();
      return u <= INT64_MAX ? Value::integer(static_cast<std::int64_t>(u)) : Value::real(static_cast<double>(u));
    }
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: return rt.str(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      rt.budget.require(json.size() * sizeof(Value));
      Values items;
      items.reserve(json.size());
      for (const Json& part : json) items.push_back(from_json(rt, part, depth + 1));
      return rt.list(std::move(items));
    }
    case Json::value_t::object: {
      DictBuilder dict(rt);
      for (const auto& [key, part] : json.items()) dict.set(rt.str(key), from_json(rt, part, depth + 1));
      return dict.done();
    }
    default: return Value::none();
  }
}

}  // namespace
}  // namespace jinja

Template::Template(std::unique_ptr<const jinja::Program> program) : program_(std::move(program)) {}
Template::~Template() = default;

Result<std::shared_ptr<const Template>> Template::parse(std::string_view source, const ParseLimits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return Status::exhausted(
        fmt::format("line 1: the template has {} bytes; expected at most {}", source.size(), limits.source_bytes_max));
  }
  try {
    return std::shared_ptr<const Template>(
        std::make_shared<Template>(jinja::Parser(jinja::tokenize(source), limits).parse()));
  } catch (const jinja::Fault& fault) {
    return jinja::status_of(fault, 1);
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& input, const RenderOptions& options) const {
  auto rendered = render_marked(nlohmann::ordered_json::object(), input, options);
  if (!rendered.ok()) return rendered.status();
  return std::move(rendered->text);
}

Result<Rendered> Template::render_marked(const nlohmann::ordered_json& given, const nlohmann::ordered_json& own,
                                         const RenderOptions& options) const {
  if (!given.is_object() || !own.is_object()) {
    return Status::invalid("the template's variables: expected a JSON object");
  }
  jinja::Interpreter interpreter(*program_, options);
  try {
    for (std::size_t i = 0; i < program_->names.size(); ++i) {
      const auto mine = own.find(program_->names[i]), theirs = given.find(program_->names[i]);
      if (mine == own.end() && theirs == given.end()) continue;
      const jinja::Runtime::Giving giving(interpreter, mine == own.end());
      interpreter.set_global(static_cast<int>(i),
                             jinja::from_json(interpreter, mine == own.end() ? *theirs : *mine, 0));
    }
    return interpreter.run();
  } catch (const jinja::Fault& fault) {
    return jinja::status_of(fault, std::max(interpreter.line, 1));
  }
}

}  // namespace lode::text

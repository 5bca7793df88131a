// tojson as Hugging Face's transformers defines it: Python's json.dumps with ensure_ascii off, nothing escaped for
// HTML.
#include <fmt/format.h>

#include <cmath>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {
namespace {

std::string json_real(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return real_repr(d);
}

void put_escape(Sink& out, std::uint32_t unit) {
  out.put(fmt::format("\\u{:04x}", unit));
}

void put_string(Sink& out, std::string_view text, const JsonStyle& style) {
  out.put('"');
  std::size_t plain = 0;  // Where text that needs no escape begins.
  for (std::size_t pos = 0; pos < text.size();) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    const bool special = byte < 0x20 || byte == '"' || byte == '\\' || (style.ascii && byte >= 0x80);
    const Utf8Char c = byte < 0x80 ? Utf8Char{byte, 1} : utf8_at(text, pos);
    if (special) {
      out.put(text.substr(plain, pos - plain));
      plain = pos + c.bytes;
      switch (c.code) {
        case '"': out.put("\\\""); break;
        case '\\': out.put("\\\\"); break;
        case '\n': out.put("\\n"); break;
        case '\r': out.put("\\r"); break;
        case '\t': out.put("\\t"); break;
        case '\f': out.put("\\f"); break;
        case '\b': out.put("\\b"); break;
        default:
          if (!c.valid()) {
            put_escape(out, 0xFFFD);
          } else if (c.code < 0x10000) {
            put_escape(out, c.code);
          } else {
            put_escape(out, 0xD800 + ((c.code - 0x10000) >> 10));
            put_escape(out, 0xDC00 + ((c.code - 0x10000) & 0x3FF));
          }
      }
    }
    pos += c.bytes;
  }
  out.put(text.substr(plain));
  out.put('"');
}

class Writer {
 public:
  Writer(Runtime& rt, Sink& out, const JsonStyle& style) : rt_(rt), out_(out), style_(style) {}

  void put(const Value& v) {
    rt_.budget.step();
    switch (v.kind()) {
      case Kind::none: out_.put("null"); return;
      case Kind::boolean: out_.put(v.as_bool() ? "true" : "false"); return;
      case Kind::integer: out_.put(fmt::format("{}", v.as_integer())); return;
      case Kind::real: out_.put(json_real(v.as_real())); return;
      case Kind::string: put_string(out_, v.text(), style_); return;
      case Kind::dict: put_dict(v.as<DictObject>()); return;
      case Kind::sequence: {
        const auto& s = v.as<SequenceObject>();
        if (s.flavor != Flavor::list && s.flavor != Flavor::tuple && s.flavor != Flavor::group) break;
        put_list(s.items);
        return;
      }
      default: break;
    }
    fail(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
  }

 private:
  void new_line() {
    if (!style_.indent) return;
    out_.put('\n');
    out_.fill(level_, *style_.indent);
  }

  void put_list(const Values& items) {
    if (items.empty()) return out_.put("[]");
    out_.put('[');
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.put(style_.item_separator);
      new_line();
      put(items[i]);
    }
    --level_;
    new_line();
    out_.put(']');
  }

  void put_key(const Value& key) {
    switch (key.kind()) {
      case Kind::string: put_string(out_, key.text(), style_); return;
      case Kind::none: out_.put("\"null\""); return;
      case Kind::boolean: out_.put(key.as_bool() ? "\"true\"" : "\"false\""); return;
      case Kind::integer: out_.put(fmt::format("\"{}\"", key.as_integer())); return;
      case Kind::real: out_.put('"' + json_real(key.as_real()) + '"'); return;
      default: fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void put_dict(const DictObject& dict) {
    if (dict.items.empty()) return out_.put("{}");
    std::vector<std::pair<Value, Value>> sorted;
    if (style_.sort_keys) {
      rt_.budget.require(dict.items.size() * sizeof(sorted[0]));
      sorted = dict.items;
      sort_by(rt_, sorted, Order::ascending);
    }
    out_.put('{');
    ++level_;
    bool first = true;
    for (const auto& [key, value] : style_.sort_keys ? sorted : dict.items) {
      if (!first) out_.put(style_.item_separator);
      first = false;
      new_line();
      put_key(key);
      out_.put(style_.key_separator);
      put(value);
    }
    --level_;
    new_line();
    out_.put('}');
  }

  Runtime& rt_;
  Sink& out_;
  const JsonStyle& style_;
  std::size_t level_ = 0;
};

}  // namespace

std::string to_json(Runtime& rt, const Value& v, const JsonStyle& style) {
  Sink out(rt.budget);
  Writer(rt, out, style).put(v);
  return out.take();
}

}  // namespace lode::text::jinja

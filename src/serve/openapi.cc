#include "serve/openapi.h"

#include <algorithm>

#include "serve/json.h"

namespace lode::serve {
namespace {

// "/slots/{id_slot}" -> "/slots/", as the table of routes has it.
std::string_view route_path(std::string_view path) {
  return path.substr(0, path.find('{'));
}

std::string lower(std::string_view method) {
  std::string out(method);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

}  // namespace

std::string openapi_document(std::span<const RouteName> routes) {
  Json document = Json::parse(openapi_source());
  Json paths = Json::object();
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const bool there = std::any_of(routes.begin(), routes.end(), [&, &path = path, &method = method](const auto& r) {
        return r.path == route_path(path) && lower(r.method) == method;
      });
      if (there) paths[path][method] = operation;
    }
  }
  document["paths"] = std::move(paths);
  return dump_json(document);
}

}  // namespace lode::serve

// The description of the HTTP interface that /openapi.json answers with: openapi.json beside this file, less what this
// build has no route for. Owns one parsed copy. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lode::serve {

struct RouteName {
  std::string_view method, path;  // A path that ends in '/' stands for all that go on with a name.
};

// The whole document, as it is written.
std::string_view openapi_source();
// OpenAPI 3.1: the document with the paths and methods of `routes` alone.
std::string openapi_document(std::span<const RouteName> routes);

}  // namespace lode::serve

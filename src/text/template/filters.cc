// jinja2's filters by name.
#include "text/template/filters.h"

namespace lode::text::jinja {
namespace {

struct Entry {
  std::string_view name;
  Filter filter;
};
constexpr Entry kFilters[] = {
    {"abs", filters::absolute},
    {"attr", filters::attr},
    {"batch", filters::batch},
    {"capitalize", filters::capitalize},
    {"center", filters::center},
    {"count", filters::length},
    {"d", filters::default_value},
    {"default", filters::default_value},
    {"dictsort", filters::dictsort},
    {"e", filters::escape},
    {"escape", filters::escape},
    {"filesizeformat", filters::filesizeformat},
    {"first", filters::first},
    {"float", filters::floating},
    {"forceescape", filters::forceescape},
    {"format", filters::format},
    {"groupby", filters::groupby},
    {"indent", filters::indent},
    {"int", filters::integer},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", filters::length},
    {"list", filters::list},
    {"lower", filters::lower},
    {"map", filters::map},
    {"max", filters::max},
    {"min", filters::min},
    {"reject", filters::reject},
    {"rejectattr", filters::rejectattr},
    {"replace", filters::replace},
    {"reverse", filters::reverse},
    {"round", filters::round},
    {"safe", filters::safe},
    {"select", filters::select},
    {"selectattr", filters::selectattr},
    {"slice", filters::slice},
    {"sort", filters::sort},
    {"string", filters::string},
    {"sum", filters::sum},
    {"title", filters::title},
    {"tojson", filters::tojson},
    {"trim", filters::trim},
    {"truncate", filters::truncate},
    {"unique", filters::unique},
    {"upper", filters::upper},
    {"urlencode", filters::urlencode},
    {"wordcount", filters::wordcount},
    {"xmlattr", filters::xmlattr},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace lode::text::jinja

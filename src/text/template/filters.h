// The filters of each file; filters.cc has the table. src/text/template only.
#pragma once

#include "text/template/runtime.h"

namespace lode::text::jinja::filters {

// ---- filters_text.cc
Value capitalize(Runtime& rt, const Args& args);
Value center(Runtime& rt, const Args& args);
Value escape(Runtime& rt, const Args& args);
Value filesizeformat(Runtime& rt, const Args& args);
Value forceescape(Runtime& rt, const Args& args);
Value format(Runtime& rt, const Args& args);
Value indent(Runtime& rt, const Args& args);
Value join(Runtime& rt, const Args& args);
Value lower(Runtime& rt, const Args& args);
Value replace(Runtime& rt, const Args& args);
Value safe(Runtime& rt, const Args& args);
Value string(Runtime& rt, const Args& args);
Value title(Runtime& rt, const Args& args);
Value tojson(Runtime& rt, const Args& args);
Value trim(Runtime& rt, const Args& args);
Value truncate(Runtime& rt, const Args& args);
Value upper(Runtime& rt, const Args& args);
Value urlencode(Runtime& rt, const Args& args);
Value wordcount(Runtime& rt, const Args& args);
Value xmlattr(Runtime& rt, const Args& args);

// ---- filters_number.cc
Value absolute(Runtime& rt, const Args& args);
Value floating(Runtime& rt, const Args& args);
Value integer(Runtime& rt, const Args& args);
Value round(Runtime& rt, const Args& args);
Value sum(Runtime& rt, const Args& args);

// ---- filters_sequence.cc
Value attr(Runtime& rt, const Args& args);
Value batch(Runtime& rt, const Args& args);
Value default_value(Runtime& rt, const Args& args);
Value dictsort(Runtime& rt, const Args& args);
Value first(Runtime& rt, const Args& args);
Value groupby(Runtime& rt, const Args& args);
Value items(Runtime& rt, const Args& args);
Value last(Runtime& rt, const Args& args);
Value length(Runtime& rt, const Args& args);
Value list(Runtime& rt, const Args& args);
Value map(Runtime& rt, const Args& args);
Value max(Runtime& rt, const Args& args);
Value min(Runtime& rt, const Args& args);
Value reject(Runtime& rt, const Args& args);
Value rejectattr(Runtime& rt, const Args& args);
Value reverse(Runtime& rt, const Args& args);
Value select(Runtime& rt, const Args& args);
Value selectattr(Runtime& rt, const Args& args);
Value slice(Runtime& rt, const Args& args);
Value sort(Runtime& rt, const Args& args);
Value unique(Runtime& rt, const Args& args);

// A path such as "a.b.0", as the `attribute` arguments of filters take it.
class Path {
 public:
  // nullptr and none: the item itself.
  Path(Runtime& rt, const Value* attribute);
  Value of(Runtime& rt, const Value& item, const Value* otherwise = nullptr) const;

 private:
  Values parts_;
};
// Lower case for strings, anything else as it is.
Value without_case(Runtime& rt, const Value& v);

}  // namespace lode::text::jinja::filters

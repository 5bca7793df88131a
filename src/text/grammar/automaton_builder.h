// The intermediate form -> the automaton. Pure. Any thread; src/text/grammar only.
#pragma once

#include <memory>

#include "base/status.h"
#include "text/grammar/automaton.h"
#include "text/grammar/fsa.h"
#include "text/grammar/ir.h"

namespace lode::text::grammar {

// Errors: past a bound of `work`; no finite document satisfies the grammar.
Result<std::shared_ptr<const Automaton>> build_automaton(const Ir& ir, RuleId root, Work& work);

// A node without rules as an automaton of its own, for intersections and differences. Repeats are written out.
Result<Fsa> build_fsa(const Ir& ir, NodeId node, Work& work);

}  // namespace lode::text::grammar

// The command line: finds the command, turns what it throws into one line and an exit code. Called by main.cc alone.
#pragma once

namespace lode::cli {

// Exit codes: 0 done, 1 it failed (one line on stderr says why), 2 the command line is wrong.
int main(int argc, const char* const* argv);

}  // namespace lode::cli

#include "cli/cli.h"

int main(int argc, char** argv) {
  return lode::cli::main(argc, argv);
}

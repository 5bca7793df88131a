#!/usr/bin/env bash
# The main job on a real model: sets up, then answers a 16,000-token prompt cold, warm, and after a restart.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$ROOT/scripts/setup.sh"
exec "$ROOT/.venv/bin/python" "$ROOT/scripts/demo.py" "$@"

#!/usr/bin/env python3
"""Checks the rooms of src/: who may include whom, where operating-system headers may stand, and sizes.

    check_layering.py             checks src/; exit code 1 if a rule is broken. Long files and functions are only listed.
    check_layering.py --self-test proves that each rule can fail

Rules: a file of src/ROOM/ includes its own room's headers and those of rooms before it in the list below; headers of the
operating system stand in platform/ only; instruction-set intrinsics and #ifdef __AVX... stand in kernels/ only.
"""
import pathlib
import re
import sys
import tempfile

# quant/ comes before gguf/: a file's reader must know how many bytes a block of each type has, and quant/ needs base/ only.
ROOMS = ['base', 'platform', 'quant', 'gguf', 'text', 'kernels', 'model', 'plan', 'memory', 'kv', 'experts', 'engine',
         'web', 'serve', 'cli']
OS_HEADER = re.compile(r'(sys|linux|asm|net|netinet|arpa)/|(unistd|fcntl|liburing|poll|signal|pthread|sched|dlfcn|'
                       r'dirent|termios|pwd|grp|spawn|syslog|ucontext|execinfo|netdb|ifaddrs|semaphore|mqueue|aio)\.h$')
INTRINSICS = re.compile(r'(\w*intrin|arm_neon|cpuid)\.h$')
ISA_CONDITION = re.compile(r'#\s*(if|ifdef|ifndef|elif)\b.*\b__(AVX|SSE|FMA|F16C|AMX|ARM_NEON|BMI)\w*')
INCLUDE = re.compile(r'#\s*include\s*([<"])([^>"]+)[>"]')
FILE_LINES_MAX, FUNCTION_LINES_MAX, KERNEL_LINES_MAX = 800, 70, 150
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)


def blank(text):
    """The text with comments, strings and characters blanked out, line by line the same length in lines."""
    return TOKEN.sub(lambda m: '\n' * m.group().count('\n') if m.group()[0] == '/' or m.group()[0] == 'R' else '""', text)


def functions(text):
    """(line, lines, name) of each function body: a brace at namespace or class level that follows a parameter list."""
    text = re.sub(r'^[ \t]*#(?:.*\\\n)*.*$', lambda m: '\n' * m.group().count('\n'), blank(text), flags=re.M)
    stack, start, line = [], 0, 1
    for i, c in enumerate(text):
        if c == '\n':
            line += 1
        elif c == '{':
            head = text[start:i]
            at_top = all(kind == 'scope' for kind, _, _ in stack)
            if re.search(r'\b(namespace|class|struct|union|enum|extern)\b[^()=]*$', head):
                kind = 'scope'
            elif at_top and '(' in head and not re.search(r'=\s*$', head):
                kind = 'function'
            else:
                kind = 'other'
            name = re.search(r'([~\w:]+)\s*\(', head)
            stack.append((kind, line, name.group(1) if name else '?'))
            start = i + 1
        elif c == '}':
            if stack:
                kind, first, name = stack.pop()
                if kind == 'function':
                    yield first, line - first + 1, name
            start = i + 1
        elif c == ';':
            start = i + 1


def check_file(path, room):
    """(broken rules, warnings) of one file; both are lists of lines to print."""
    text = path.read_text(errors='replace')
    broken, warnings = [], []
    rank = ROOMS.index(room) if room else len(ROOMS)
    for number, line in enumerate(text.splitlines(), 1):
        where = f'{path}:{number}:'
        found = INCLUDE.match(line.strip())
        if found:
            kind, name = found.groups()
            other = name.split('/')[0]
            if kind == '"' and '/' not in name:
                broken.append(f'{where} "{name}" has no room: write the path from src/')
            elif kind == '"' and other not in ROOMS:
                broken.append(f'{where} "{name}": there is no room {other}/')
            elif kind == '"' and ROOMS.index(other) > rank:
                broken.append(f'{where} {room}/ may not use {other}/ ({name}): it comes later in the list of rooms')
            if kind == '<' and OS_HEADER.match(name) and room != 'platform':
                broken.append(f'{where} <{name}> is the operating system\'s: only platform/ may include it')
            if INTRINSICS.match(name) and room != 'kernels':
                broken.append(f'{where} <{name}> belongs in kernels/')
        if room != 'kernels' and ISA_CONDITION.match(line.strip()):
            broken.append(f'{where} a condition on the instruction set outside kernels/: choose at run time by the table')
    lines = text.count('\n')
    if lines > FILE_LINES_MAX:
        warnings.append(f'{path}: {lines} lines, more than {FILE_LINES_MAX}')
    most = KERNEL_LINES_MAX if room == 'kernels' else FUNCTION_LINES_MAX
    for first, length, name in functions(text):
        if length > most and not name.startswith('TEST'):
            warnings.append(f'{path}:{first}: {name} has {length} lines, more than {most}')
    return broken, warnings


def check(src):
    broken, warnings, files = [], [], 0
    for path in sorted(p for p in src.rglob('*') if p.suffix in ('.h', '.cc', '.cu', '.cuh', '.inc')):
        parts = path.relative_to(src).parts
        room = parts[0] if len(parts) > 1 else None
        files += 1
        if room is not None and room not in ROOMS:
            broken.append(f'{path}: {room}/ is no room; the rooms are {" ".join(ROOMS)}')
            continue
        b, w = check_file(path, room)
        broken += b
        warnings += w
    return broken, warnings, files


def self_test():
    """Each bad file must break exactly one rule, each long one give one warning, and the good tree none."""
    good = {'base/a.h': '#include <vector>\n', 'kv/a.cc': '#include "kv/a.h"\n#include "base/a.h"\n',
            'platform/a.cc': '#include <unistd.h>\n#include <sys/mman.h>\n', 'kernels/a.cc': '#include <immintrin.h>\n',
            'main.cc': '#include "cli/a.h"\nint main() { return 0; }\n',
            'cli/s.cc': 'void f() {\n  const char* s = "// {{{ #include <unistd.h>";\n  auto r = R"({{)";\n}\n'}
    bad = {'base/b.h': '#include "kv/store.h"\n', 'kv/b.cc': '#include <fcntl.h>\n', 'engine/b.cc': '#include <sys/stat.h>\n',
           'model/b.cc': '#include <immintrin.h>\n', 'quant/b.cc': '#ifdef __AVX2__\n#endif\n', 'utils/b.cc': '\n',
           'serve/b.cc': '#include "helper.h"\n', 'kv/c.cc': '#  include  <liburing.h>\n', 'gguf/b.cc': '#include "foo/b.h"\n',
           'plan/b.cc': '#if defined(__AVX512F__)\n#endif\n'}
    long = {'base/long.cc': '\n' * 801, 'base/body.cc': 'int f(int a) {\n' + '  a++;\n' * 70 + '}\n',
            'serve/method.cc': 'namespace x {\nclass A {\n  void g(int a) {\n' + '    if (a) {\n    }\n' * 35 + '  }\n};\n}\n'}
    problems = []
    for name, text, want in ([(n, t, (0, 0)) for n, t in good.items()] + [(n, t, (1, 0)) for n, t in bad.items()]
                             + [(n, t, (0, 1)) for n, t in long.items()]):
        with tempfile.TemporaryDirectory() as tmp:
            path = pathlib.Path(tmp) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            broken, warnings, _ = check(pathlib.Path(tmp))
            if (len(broken), len(warnings)) != want:
                problems.append(f'{name}: expected {want} broken rules and warnings, found {broken} {warnings}')
    for line in problems:
        print(f'self-test: {line}')
    print(f'self-test: {len(good) + len(bad) + len(long) - len(problems)} cases right, {len(problems)} wrong')
    return 1 if problems else 0


def main():
    if sys.argv[1:] == ['--self-test']:
        return self_test()
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(__file__).resolve().parent.parent
    broken, warnings, files = check(root / 'src')
    for line in warnings:
        print(f'warning: {line}'.replace(f'{root}/', ''))
    for line in broken:
        print(f'broken: {line}'.replace(f'{root}/', ''))
    print(f'layering: {files} files, {len(broken)} broken rules, {len(warnings)} warnings')
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())

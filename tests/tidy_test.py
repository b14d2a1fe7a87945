"""The text of this tree: words that files must not have, and documents that agree with it.

Here is what clang-format and clang-tidy do not see; tests/tidy_test.cc has the rules of folders and includes.
tidy_test.py [unittest's arguments]
"""
import pathlib
import posixpath
import re
import sys
import unittest
from typing import Callable, NamedTuple

sys.dont_write_bytecode = True  # Nothing is written into the repository.
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_words  # noqa: E402

CPP = r"\.(?:h|cc|cuh?)$"
HEADER = r"\.(?:h|cuh)$"
DOCUMENT = r"\.md$"
TEST = r"^(?:tests|benchmarks)/|_(?:test|benchmark|fuzz)\.cc$|_testing\.(?:h|cc)$"
READ = (rf"{CPP}|\.(?:cmake|cmake\.in|md|py|sh)$|CMakeLists\.txt$|^cmake/|"
        r"^(?:dev|\.ci/run|\.github/workflows/ci\.yml|\.gitignore|CMakePresets\.json)$")
PHILOX = r"^base/philox"
PLANTED_FAULTS = r"^proof/planted_faults\."  # The proof must find them.
SAMPLER = r"^model/(?:device_)?sampling\."
# Programs that run against other software, and tests that measure durations or check timeouts.
MAY_TIME_OUT = r"^(?:benchmarks|tests/(?:clients|sanitizers|soak))/"
# Files that make time stamps for people, or give a model the date.
STAMPS = (r"^(?:draft/draft_text_store|examples/chat|kvcache/events/cache_events|kvcache/store/sqlite_store|"
          r"server/api/(?:api_request_test|openapi_test|pair_set|service)|"
          r"tools/(?:bench/lab_command|conversation|kv_store_listing))\.cc$")
MAX_LINES = 600
MAX_WORDS = 1200
# Pages that are looked up rather than read, and their words.
LONG_PAGES = {"docs/bug_catalogue.md": 5000, "docs/decisions.md": 2800, "docs/command_line.md": 1700,
              "docs/models.md": 1600, "docs/constraints.md": 1300, "docs/benchmarks/cuda.md": 2200,
              "docs/benchmarks/other_engines.md": 1400, "docs/benchmarks/serving.md": 1300}
CATALOGUE = "docs/bug_catalogue.md"
CATALOGUE_ROWS = 80
GLOSSARY = "docs/glossary.md"
RUN, WORKFLOW = ".ci/run", ".github/workflows/ci.yml"

COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)|R"([^()\\\s]*)\((?s:.*?)\)\1"|'
                                r'"(?:\\.|[^"\\\n])*"|' r"(?<!\w)'(?:\\.|[^'\\\n])*'")
# A block, or text between as many backquotes, which ends with its paragraph at the latest.
CODE_IN_DOCUMENT = re.compile(r"^ *```(?s:.*?)(?:^ *```[^\n]*|\Z)|"
                              r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n|\n *```)(?s:.))*?(?<!`)\1(?!`)", re.MULTILINE)


def blank(pattern: re.Pattern, text: str) -> str:
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def whole(text: str) -> str:
    return text


def code(text: str) -> str:
    """C++ with blanks for comments and literals."""
    return blank(COMMENT_OR_LITERAL, text)


def prose(text: str) -> str:
    """Markdown with blanks for code."""
    return blank(CODE_IN_DOCUMENT, text)


class Rule(NamedTuple):
    """Files whose paths match `files`, but not `exempt`, must not have `pattern` in this view."""
    name: str
    advice: str
    files: str
    view: Callable[[str], str]
    pattern: str  # GUARD in it is the include guard of the file's path.
    exempt: str = r"(?!)"  # matches nothing


def page(files: str, words: int, exempt: str = r"(?!)") -> Rule:
    return Rule("page length", f"at most {words} words", files, whole, rf"\A\s*(?:\S+\s+){{{words}}}\S", exempt)


def in_code(name: str, advice: str, pattern: str, exempt: str = r"(?!)") -> Rule:
    return Rule(name, advice, CPP, code, pattern, exempt)


def in_all(name: str, advice: str, pattern: str, exempt: str = r"(?!)") -> Rule:
    return Rule(name, advice, "", whole, pattern, exempt)


PATIENCE = "a test waits as long as a busy machine takes, and ctest ends one that hangs"
RULES = [
    in_all("blanks", "no tabs, no blanks at a line's end, and a newline at the file's", r"\t|[ \r]$|[^\n]\Z"),
    in_all("file length", f"at most {MAX_LINES} lines: a longer file has more than one subject",
           rf"\A(?:.*\n){{{MAX_LINES}}}(?s:.)", DOCUMENT),
    page(r"^docs/.*\.md$", MAX_WORDS, "|".join(f"^{path}$" for path in LONG_PAGES)),
    *(page(f"^{path}$", words) for path, words in LONG_PAGES.items()),
    # clang-format leaves strings as they are.
    Rule("width of code", "at most 100 columns without a URL", CPP, whole, r"^(?!.*://).{101,}"),
    # Tables, and commands of more than half a line, are not wrapped.
    Rule("width of documents", "at most 120 columns", DOCUMENT, prose, r"^(?!\||.*://|.* {62}).{121,}"),
    Rule("zero", "a digit before the point: 0.53", DOCUMENT, prose, r"(?<![\w./])\.\d"),
    Rule("include guard", "TANDEM_<PATH>_H_", HEADER, whole,
         r"\A(?!(?://.*\n|\n)*#ifndef GUARD\n#define GUARD\n(?s:.*)^#endif  // GUARD\n\Z)"),
    # clang-tidy sees neither the headers of kernels/cuda/ nor those of include/.
    Rule("namespace", "a header would decide for every file that includes it", HEADER, code, r"\busing namespace\b"),
    in_code("device macro", "a feature that a build lacks is another file, chosen by CMake",
            r"^[ \t]*#[ \t]*(?:el)?if(?:\\\n|.)*?(?:_M_X64|TANDEM_CUDA|"
            r"__(?:AVX|SSE|FMA|F16C|BMI|AMX|x86_64|ARM|aarch64|i386|CUDA|NVCC))"),
    in_code("printing", "libraries never print",
            r"\b(?:v?f?printf|f?puts|putchar|perror|cout|cerr|clog)\b|#\s*include <iostream>",
            rf"{TEST}|^(?:tools|examples|python)/|^base/check\.h$"),
    in_code("throw", "errors are absl::Status or TANDEM_CHECK", r"\bthrow\b"),
    in_code("random numbers", "they come from base/philox.h",
            r"\b(?:mt19937(?:_64)?|default_random_engine|minstd_rand|s?rand|drand48|random_shuffle|ranlux48)\b",
            rf"{TEST}|{PHILOX}"),
    in_code("entropy", "seeds are passed in", r"\brandom_device\b",
            rf"{TEST}|{PHILOX}|^tools/|^engine/new_session\.cc$"),
    in_code("Philox", "base/philox.cc alone implements it", r"(?i:d2511f53|cd9e8d57)", PHILOX),
    # Each stream of random numbers has one reader, and counters are formed in one place. Tests can read everything.
    in_code("draft stream", "read in draft/", r"\bkDraft\b",
            rf"{TEST}|{PHILOX}|{PLANTED_FAULTS}|^draft/"),
    in_code("verify streams", "read in verify/", r"\bk(?:Accept|Residual)\b",
            rf"{TEST}|{PHILOX}|{PLANTED_FAULTS}|^verify/"),
    in_code("random places", "chosen in draft/ and verify/", r"\bRandomPlace\b",
            rf"{TEST}|{PHILOX}|{PLANTED_FAULTS}|{SAMPLER}|^draft/|^verify/"),
    in_code("first counters", "formed in base/philox.cc for the sampler", r"\bFirstCounter\b",
            rf"{TEST}|{PHILOX}|{SAMPLER}"),
    in_code("Philox blocks", "computed in base/philox.cc, and on a device at counters formed there", r"\bPhiloxBlock\b",
            rf"{TEST}|{PHILOX}|^kernels/cuda/sampling\."),
    in_code("Philox counters", "formed in base/philox.cc; tools can make weights with it", r"\bPhilox4x32\b",
            rf"{TEST}|{PHILOX}|^tools/"),
    in_code("time of day", "only for stamps that people read; durations and deadlines use base/instant.h",
            r"\b(?:absl::Now|GetCurrentTimeNanos|(?:system|high_resolution)_clock|gettimeofday|CLOCK_REALTIME)\b|"
            r"\b(?:std::time\b|time\(nullptr\))", STAMPS),
    # Otherwise libstdc++ can read its count of waiting threads before the store is visible, and one never wakes.
    in_code("wake", "a store before a notification is memory_order_seq_cst",
            r"^(?!.*memory_order_seq_cst).*store\(.*\n.*notify_"),
    # The library makes a JSON value of a text in a function that must not throw, also when memory is short.
    Rule("JSON comparison", "IsText(value, text) compares without a copy", CPP, whole,
         r"\[\"[$\w]+\"\] [!=]= (?:\"|type\b|name\b)", rf"{TEST}|^tools/"),
    in_code("hash table", "those of base/hash_map.h keep their content if memory runs out while they grow",
            r"\babsl::(?:flat|node)_hash_(?:map|set)\b",
            rf"{TEST}|^(?:proof|tools)/|^base/hash_map\.h$|^text/bpe\.h$"),
    # ctest runs cases of one program at the same time.
    Rule("test file", "a test writes into its own TestFolder", CPP, code, r"\bTempDir\b", r"^tests/folder_testing\.h$"),
    Rule("timeout", PATIENCE, rf"^(?=.*{CPP})(?=.*(?:{TEST}))", code,
         r"\b(?:SO_(?:RCV|SND)TIMEO|\w+WithTimeout|wait_for|wait_until)\b", MAY_TIME_OUT),
    Rule("timeout in Python", PATIENCE, r"^(?:python/)?tests/.*\.py$", whole,
         r"\b(?:settimeout\(|timeout=\d)", MAY_TIME_OUT),
    in_all("note", "later work belongs in the issue tracker", r"\b(?:TODO|FIXME|XXX)\b"),
    in_all("machine", "no path of a particular machine", r"/(?:work|root|home)/"),
    in_all("registry", "no host of a package registry",
           r"(?:pypi|pythonhosted|npmjs|(?:deb|security)\.debian|anaconda)\.org|(?:npmjs|archive\.ubuntu)\.com|"
           r"crates\.io"),
    # Otherwise Python prefers modules of the current folder to its own.
    Rule("isolated", "Python that is started with a module or code has -I", rf"{CPP}|\.(?:sh|py|cmake)$|^dev$", whole,
         r'^(?!.*(?:`python|sys\.exit\()).*(?:python3?|executable)"?,? +"?-[cm]\b', r"_test\.cc$|tests/"),
]


def glossary_rule(glossary: str) -> Rule:
    """The words in backquotes in the last column of the glossary's tables."""
    words = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\|.*\|(.*)\|$", glossary, re.MULTILINE)))
    return Rule("glossary", "the glossary has another word", f"{CPP}|{DOCUMENT}", whole,
                rf"\b(?:{'|'.join(map(re.escape, words))})\b", f"^{GLOSSARY}$")


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def hits(rules: list[Rule], files: dict[str, str]) -> list[tuple[str, str]]:
    """(name of a rule, path:line: advice) for each place that breaks one."""
    found = []
    for path, text in files.items():
        guard = "TANDEM_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
        views = {}
        for rule in rules:
            if not re.search(rule.files, path) or re.search(rule.exempt, path):
                continue
            view = views[rule.view] = views.get(rule.view) or rule.view(text)
            for match in re.finditer(rule.pattern.replace("GUARD", guard), view, re.MULTILINE):
                place = f"{path}:{line_of(view, match.start())}"
                found.append((rule.name, f"{place}: {rule.name}: {rule.advice}: {match[0][:60]}"))
    return found


def anchors(document: str) -> set[str]:
    """The headings as links name them: in lower case, with hyphens for spaces and without punctuation."""
    headings = re.findall(r"^#+ *(.*)", document, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-").lower() for heading in headings}


def broken_links(files: dict[str, str], paths: set[str]) -> list[str]:
    found = []
    for path, text in files.items():
        for link in re.finditer(r"\]\(([^):# ]*)(?:#([^) :]*))?[) ]", prose(text) if path.endswith(".md") else ""):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1])) if link[1] else path
            exists = target == "." or target in paths
            if not exists or (link[2] and target.endswith(".md") and link[2] not in anchors(files.get(target, ""))):
                found.append(f"{path}:{line_of(text, link.start())}: links to {link[0][2:-1]}, which does not exist")
    return found


def tests_in(path: str, text: str) -> set[str]:
    """The tests of a file: Suite.Name in C++, in Python test_name and Class.test_name."""
    if not path.endswith(".py"):
        return {".".join(test) for test in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", code(text))}
    functions = re.findall(r"\bdef (\w+)\(", text)
    classes = re.findall(r"\bclass (\w+)\(", text)
    return {*functions, *(f"{name}.{function}" for name in classes for function in functions)}


def catalogue_faults(files: dict[str, str]) -> list[str]:
    """Each row names tests that exist, or says what it waits for, and every test of KnownFaults is named."""
    found, rows, named = [], set(), set()
    for number, line in enumerate(files.get(CATALOGUE, "").splitlines(), 1):
        tests = re.findall(r"`([\w/]+_(?:test\.cc|test\.py|cases\.py)): (\w+(?:\.\w+)?)`", line)
        named |= {test for _, test in tests}
        found += [f"{CATALOGUE}:{number}: {path} has no test {test}" for path, test in tests
                  if test not in tests_in(path, files.get(path, ""))]
        row = re.match(r"\|\s*(\d+)\s*\|", line)
        if row:
            rows.add(int(row[1]))
            if not tests and "waits for" not in line:
                found.append(f"{CATALOGUE}:{number}: names no test and does not say what it waits for")
    found += [f"{CATALOGUE}:1: has no row {row}" for row in range(1, CATALOGUE_ROWS + 1) if row not in rows]
    for path, text in files.items():
        if "KnownFaults" in text and re.search(CPP, path):
            found += [f"{path}:1: {test} is not named in {CATALOGUE}" for test in sorted(tests_in(path, text) - named)
                      if test.startswith("KnownFaults.")]
    return found


def hosted_lanes_differ(run: str, workflow: str) -> bool:
    """Whether the lanes of the hosted workflow are not those of .ci/run, in their order."""
    hosted = re.search(r"^ *lane:\n((?: *- .*\n)+)", workflow, re.MULTILINE)
    return re.findall(r"^lane (.*)", run, re.MULTILINE) != re.findall(r"- (.*)", hosted[1] if hosted else "")


GUARDED = "// A header.\n#ifndef {0}\n#define {0}\nint a;\n#endif  // {0}\n"
# For each rule, places that it must see.
PLANTED = {
    "blanks": [("a.md", "a\tb\n"), ("dev", "a\nb \n"), ("a.py", "a\r\n"), ("a.cc", "int a;")],
    "width of code": [("a.cc", "x" * 101 + "\n")],
    "width of documents": [("a.md", "x" * 121 + "\n"), ("a.md", "```\n```\n" + "x" * 121 + "\n"),
                           ("a.md", "`a` and `b`" + "x" * 121 + "\n")],
    "file length": [("a.cc", "x\n" * 601), ("a.py", "\n" * 601)],
    "page length": [("docs/b/a.md", "a\n" * 1201),
                    *((page, "a\n" * (words + 1)) for page, words in LONG_PAGES.items())],
    "zero": [("a.md", f"a\n{number}\n") for number in (".53", "a (.5 b", "| -.5 |", "1 to .9", "\u2248.5")],
    "include guard": [("base/a.h", GUARDED.format("TANDEM_A_H_")), ("base/a.h", "#pragma once\n"),
                      ("base/a.h", "#ifndef TANDEM_BASE_A_H_\n#endif\n"), ("base/a.h", "")],
    "device macro": [("kernels/a.cc", text) for text in (
        "#ifdef __AVX512F__\n", "#if defined(__x86_64__)\n", "#if 1\n#elif __ARM_NEON\n", "# ifndef TANDEM_CUDA\n",
        "#if 1 && \\\n  __CUDA_ARCH__ > 800\n")],
    "namespace": [("base/a.h", GUARDED.format("TANDEM_BASE_A_H_").replace("int a", "using namespace std"))],
    "printing": [("engine/a.cc", text) for text in (
        "std::cout << 1;\n", "std::cerr << 1;\n", "printf(f);\n", "std::fprintf(stderr, f);\n", "puts(s);\n",
        "#include <iostream>\n")],
    "throw": [("tools/a.cc", "if (x) throw 1;\n")],
    "random numbers": [("model/a.cc", "std::mt19937 g;\n"), ("tools/a.cc", "x = rand();\n")],
    "entropy": [("model/a.cc", "std::random_device d;\n")],
    "Philox": [("kernels/cpu/a.cc", "x *= 0xd2511f53u;\n"), ("tests/a_test.cc", "0xCD9E8D57\n")],
    "draft stream": [("verify/a.cc", "RandomStream::kDraft;\n")],
    "verify streams": [("draft/a.cc", "RandomStream::kAccept;\n"),
                       ("draft/b.cc", "using enum RandomStream; f(kResidual);\n")],
    "random places": [("engine/a.cc", "RandomPlace place;\n")],
    "first counters": [("kernels/cpu/a.cc", "RandomSource::FirstCounter(p);\n")],
    "Philox blocks": [("kernels/cpu/a.cc", "PhiloxBlock(p);\n")],
    "Philox counters": [("model/a.cc", "Philox4x32({0, 0, slot, step}, seed);\n")],
    "time of day": [(path, f"{clock};\n") for path in ("engine/a.cc", "tests/a_test.cc") for clock in (
        "f(absl::Now())", "absl::GetCurrentTimeNanos()", "gettimeofday(&t, nullptr)", "::time(nullptr)",
        "std::time(&t)", "std::chrono::system_clock::now()", "std::chrono::high_resolution_clock::now()",
        "clock_gettime(CLOCK_REALTIME, &t)")],
    "JSON comparison": [("text/a.cc", 'bool is_object = flat["type"] == "object";\n')],
    "wake": [("base/a.cc", "x.store(1, std::memory_order_release);\nx.notify_all();\n")],
    "hash table": [("model/a.cc", "absl::flat_hash_map<int, int> a;\n"), ("base/b.cc", "absl::node_hash_set<int> b;\n")],
    "test file": [("tools/a_test.cc", 'file = testing::TempDir() + "/a";\n')],
    "timeout": [("server/a_testing.cc", text) for text in (
        "setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));\n", "future.wait_for(20s);\n",
        "mutex.AwaitWithTimeout(done, absl::Seconds(20));\n",
        "done.WaitForNotificationWithTimeout(absl::Seconds(20));\n")],
    "timeout in Python": [("python/tests/a_test.py", "connection.settimeout(20)\n"),
                          ("tests/a_test.py", "process.wait(timeout=20)\n")],
    "note": [("a.cc", "// TODO: x\n"), ("b.md", "FIXME\n"), ("c.py", "# XXX\n")],
    "machine": [("a.md", f"cd /{folder}/x\n") for folder in ("work", "root", "home")],
    "registry": [("a.md", "pip install -i pypi" ".org\n"), ("a.md", "deb.debian" ".org\n")],
    "isolated": [("cmake/a.sh", "python3 -m pip download x\n"), ("dev", "  python -c 'import x'\n"),
                 ("a.py", 'run([sys.executable, "-c", code])\n'), ("b.py", 'run([python, "-m", "pip"])\n'),
                 ("a.cc", 'Run({"python3", "-m", "pip"});\n')],
}

# Text that no rule may take for a violation.
RIGHT = [
    ("a.cc", "x" * 100 + "\n"), ("b.cc", "x" * 98 + "\u00e9\u00e9\n"),
    ("c.cc", "// http://" + "x" * 101 + "\n"), ("d.cc", ""),
    ("a.md", "x" * 120 + "\n"), ("a.md", "| " + "x" * 121 + " |\n"), ("a.md", "```\n" + "x" * 121 + "\n```\n"),
    ("a.md", "http://" + "x" * 121 + "\n"), ("a.md", "see `" + "x" * 130 + "`\n"),
    ("a.cc", "x\n" * 600), ("a.md", "x\n" * 1300), ("docs/a.md", "a\n" * 1200), ("docs/bug_catalogue.md", "a\n" * 1300),
    ("a.md", "0.5, 1.53 of v1.2.3, `.5`, a...5, a.5 [x](a/.5.md)\n```\n.53\n```\n"), ("a.cc", "// .5\n"),
    ("server/api/a.h", GUARDED.format("TANDEM_SERVER_API_A_H_")),
    ("kernels/cuda/a.cuh", GUARDED.format("TANDEM_KERNELS_CUDA_A_CUH_")),
    ("base/a.cc", "using namespace std;\n"),
    ("base/a.cc", "#ifndef TANDEM_BASE_A_H_\n// #ifdef __AVX2__\n#if defined(__linux__)\n#endif\n"),
    ("base/a.cc", "snprintf(b, 1, f);  // printf\n"), ("base/a_test.cc", "std::cerr << 1;\n"),
    ("tools/a.cc", "#include <iostream>\nstd::cout << 1;\n"),
    ("base/a.cc", '// must not throw\nf("throw");\nint rethrown;\n'),
    ("base/philox.cc", "0xD2511F53 0xCD9E8D57\n"), ("model/a_test.cc", "std::mt19937 random(1);\n"),
    ("engine/a_testing.cc", "std::mt19937 random(1);\n"), ("engine/new_session.cc", "std::random_device d;\n"),
    ("model/a.cc", "float random = Operand(1);\n"),
    ("draft/a_drafter.cc", "RandomPlace{.stream = RandomStream::kDraft};\n"),
    ("verify/verifier.cc", "f(RandomStream::kAccept, RandomStream::kResidual);\n"),
    ("model/sampling.cc", "RandomSource::FirstCounter(place);\n"), ("engine/a_test.cc", "RandomStream::kResidual;\n"),
    ("tools/a.cc", "Philox4x32(counter, key);\n"), ("engine/a.cc", "// kDraft\nProvenance::kAccepted;\n"),
    ("server/api/service.cc", "f(absl::Now());\n"),
    ("engine/a.cc", "// absl::Now\nInstant::Now();\nstd::chrono::steady_clock::now();\nrun_time(nullptr);\n"),
    ("base/a.cc", "x.store(1, std::memory_order_seq_cst);\nx.notify_all();\n"), ("base/b.cc", "found_.notify_one();\n"),
    ("tools/a.cc", "absl::flat_hash_map<int, int> a;\n"), ("model/b.cc", "HashMap<int, int> b;  // absl::flat_hash_map\n"),
    ("tests/folder_testing.h", GUARDED.format("TANDEM_TESTS_FOLDER_TESTING_H_").replace("int a", "TempDir()")),
    ("engine/engine.cc", "mutex_.AwaitWithTimeout(done, timeout);\n"),
    ("tests/a_test.cc", "mutex.Await(done);  // AwaitWithTimeout\nwait_format();\n"),
    ("tests/a_test.py", "socket.create_connection(address, timeout=None)\n"),
    ("benchmarks/a.py", "connection.settimeout(9)\n"),
    ("tests/soak/soak.py", "connection.settimeout(9)\n"), ("tests/clients/a.py", "urlopen(request, timeout=60)\n"),
    ("a.sh", "mktemp XXXXXX\npython3 -I -m pip list\npython3 tools/a.py -c x\n"),
    ("a.md", "see framework/a and build/release\n"), ("a.py", 'run([sys.executable, "-I", "-c", code])\n'),
    ("tests/b_test.py", 'run([sys.executable, "-m", "x"])\n'),
]


def catalogue(first_row: str) -> dict[str, str]:
    """A page with all rows, starting with this one."""
    rows = [f"| 1 | {first_row} |", *(f"| {row} | waits for x |" for row in range(2, CATALOGUE_ROWS + 1))]
    return {CATALOGUE: "\n".join(rows), "verify/a_test.cc": "TEST(Judge,\n     Accepts) {\n// TEST(Judge, Sleeps)\n",
            "tests/c_test.py": "class Judge(unittest.TestCase):\n    def test_it(self):\n"}


class Tidy(unittest.TestCase):
    def test_this_tree_follows_all_rules(self):
        listed = check_words.listed_files(ROOT)
        files = {path: (ROOT / path).read_bytes().decode() for path in listed
                 if re.search(READ, path) and not path.startswith("tests/data/")}
        for path in ("base/philox.h", "dev", RUN, WORKFLOW, GLOSSARY):
            self.assertIn(path, files)
        own = str(pathlib.Path(__file__).relative_to(ROOT))
        rules = RULES + [glossary_rule(files[GLOSSARY])]
        found = [text for _, text in hits(rules, {path: text for path, text in files.items() if path != own})]
        folders = {str(folder) for path in listed for folder in pathlib.PurePosixPath(path).parents}
        found += broken_links(files, {*listed, *folders}) + catalogue_faults(files)
        if hosted_lanes_differ(files[RUN], files[WORKFLOW]):
            found.append(f"{WORKFLOW}:1: its lanes differ from those of {RUN}")
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_every_rule_sees_what_is_planted(self):
        for name in {rule.name for rule in RULES} | PLANTED.keys():
            for path, text in PLANTED[name]:
                self.assertEqual([hit for hit, _ in hits(RULES, {path: text})], [name], (path, text))

    def test_right_text_passes(self):
        for path, text in RIGHT:
            self.assertEqual(hits(RULES, {path: text}), [])

    def test_a_hit_names_its_line(self):
        self.assertIn("a.cc:2: throw: errors", hits(RULES, {"a.cc": "// throw\nthrow 1;\n"})[0][1])

    def test_views_blank_and_keep_lines(self):
        for view, text, seen in [
                (code, "a // b\nc", "a     \nc"), (code, "a /* b\n */ c", "a     \n    c"),
                (code, r"""f("x\"y", 'z', 1'000);""", "f(      ,    , 1'000);"),
                (code, 'R"q(a")b)q" c', " " * 12 + "c"),
                (code, '"// no comment" d', " " * 15 + " d"), (prose, "a `b` c\n", "a     c\n"),
                (prose, "a `b\nc` d ``e`f``\n", "a   \n   d        \n"),
                (prose, "a ` b\n\nc ` d\n", "a ` b\n\nc ` d\n"),
                (prose, "a ` b\n  ```sh\n.5 `\n  ```\nc\n", "a ` b\n       \n    \n     \nc\n")]:
            self.assertEqual(view(text), seen)

    def test_the_glossary_forbids_the_words_that_it_replaces(self):
        rule = glossary_rule("| term | meaning | in code | not |\n|---|---|---|---|\n"
                             "| epilogue | `meaning` | `Epilogue` | `ProductTail`, `tail of products` |\n")
        for path, text, seen in [("a.cc", "Epilogue e;  // the meaning\nProductTailOf(e);\n", 0),
                                 ("a.py", "ProductTail\n", 0), ("a.cc", "ProductTail e;\n", 1),
                                 ("docs/a.md", "a tail of products\n", 1)]:
            self.assertEqual(len(hits([rule], {path: text})), seen, text)

    def test_documents_link_to_what_exists(self):
        def check(text):
            return broken_links({"docs/a.md": text}, {"docs/a.md", "docs", "dev"})
        self.assertEqual(check("# It's _there_: `a`\n## Here\n[x](a.md) [y](../dev) [z](a.md#its-_there_-a)\n"
                               "[w](#here) [v](http://x.y#z) [d](../docs/) `[x](none.md)`\n"
                               "```\n[x](none.md)\n```\n"), [])
        self.assertEqual(check("# Here\n[x](a.md#there)\n[x](#there)\n![picture](a.png)\n"),
                         [f"docs/a.md:{line}: links to {target}, which does not exist"
                          for line, target in ((2, "a.md#there"), (3, "#there"), (4, "a.png"))])

    def test_the_catalogue_names_tests_that_exist(self):
        for test in ("verify/a_test.cc: Judge.Accepts", "tests/c_test.py: test_it", "tests/c_test.py: Judge.test_it"):
            self.assertEqual(catalogue_faults(catalogue(f"`{test}`")), [])
        for test in ("verify/a_test.cc: Judge.Sleeps", "verify/b_test.cc: Judge.Accepts", "tests/c_test.py: test_i",
                     "tests/c_test.py: Other.test_it", "tests/c_cases.py: test_it"):
            self.assertEqual(catalogue_faults(catalogue(f"`{test}`")),
                             [f"{CATALOGUE}:1: {test.replace(':', ' has no test')}"])
        self.assertIn("names no test", catalogue_faults(catalogue("nothing"))[0])
        self.assertEqual(len(catalogue_faults({})), CATALOGUE_ROWS)
        files = catalogue("waits for y") | {"tests/b_test.cc": "TEST(KnownFaults, Row1) {\n"}
        self.assertIn("KnownFaults.Row1 is not named", catalogue_faults(files)[0])

    def test_hosted_lanes_are_those_of_ci(self):
        run = "lane() {\n  ./dev $*\n}\nlane format --check\n# x\nlane test\n"
        lanes = ["", "    - format --check\n    - test\n", "    - format --check\n", "    - format\n    - test\n",
                 "    - format --check\n    - test\n    - asan\n"]
        differ = [hosted_lanes_differ(run, f"x:\n  lane:\n{part}steps:\n") for part in lanes]
        self.assertEqual(differ, [True, False, True, True, True])


if __name__ == "__main__":
    unittest.main()

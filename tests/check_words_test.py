"""The check of wording, tools/check_words.py: check_words_test.py [unittest's arguments]"""
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # Nothing is written into the repository.
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_words  # noqa: E402


def rules_of(path, text):
    return [(hit.line, hit.rule.name) for hit in check_words.hits_in(path, text)]


class CheckWords(unittest.TestCase):
    def test_this_tree_has_no_hits(self):
        allowed = check_words.allowed_in((ROOT / check_words.ALLOWED).read_text(encoding="utf-8"))
        problems = check_words.problems(check_words.all_hits(ROOT), allowed)
        self.assertFalse(problems, "\n" + "\n".join(problems))

    def test_sees_each_rule(self):
        for rule, text in [("genitive first", "Of the rows only the last is kept."), ("who", "Whoever waits is admitted."),
                           ("is no", "The row is no number."), ("what", "A copy of what is there."),
                           ("behind", "The page behind it."), ("idiom", "Falls back for want of memory.")]:
            self.assertIn((1, rule), rules_of("a.h", f"// {text}"), text)

    def test_lets_right_words_pass(self):
        for text in ["Of course it is read.", "There is no page.", "It is no longer read.", "Returns what callers passed.", "Knows the page."]:
            self.assertEqual(rules_of("a.h", f"// {text}"), [], text)

    def test_reads_what_people_read(self):
        self.assertEqual(rules_of("a.cc", 'int who = 0;\nF("nobody waits");\n#include "a who.h"\n'), [(2, "who")])
        self.assertEqual(rules_of("a.cc", "TEST_F(Rounds, FailWhoeverWaits) {"), [(1, "who")])
        self.assertEqual(rules_of("a.py", 'x = who\nraise ValueError("nobody waits")  \n# who\n'), [(2, "who"), (3, "who")])
        self.assertEqual(rules_of("a.md", "text\n```\nwho\n```\nwho\n"), [(5, "who")])

    def test_allows_listed_lines_and_refuses_entries_without_a_hit(self):
        hits = list(check_words.hits_in("a.h", "// Users who wait.\n// Threads who wait.\n"))
        allowed = check_words.allowed_in("# Comment.\na.h: Users who wait  # people\n")
        self.assertEqual([line.split(":")[1] for line in check_words.problems(hits, allowed)], ["2"])
        allowed.append(("a.h", "Rows who wait"))
        self.assertIn("matches no hit: a.h: Rows who wait", check_words.problems(hits, allowed)[-1])
        with self.assertRaisesRegex(ValueError, "allowed_words.txt:1: must be .*, got 'a.h: no reason'"):
            check_words.allowed_in("a.h: no reason")


if __name__ == "__main__":
    unittest.main()

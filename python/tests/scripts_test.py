"""The scripts that show the package at work."""

import subprocess
import sys

from conftest import DRAFT, ROOT, TARGET


def run(script, *arguments):
    return subprocess.run([sys.executable, ROOT / script, *map(str, arguments)],
                          capture_output=True, text=True)


def test_the_example_tells_the_story(engine):
    told = run("examples/story.py", TARGET, DRAFT, "The old woman")
    assert told.returncode == 0, told.stderr
    story = engine.generate("The old woman", max_tokens=96, temperature=0.7, seed=1).text
    assert told.stdout.startswith(story)
    assert "draft tokens were accepted" in told.stdout


def test_the_example_of_the_readme_tells_a_story():
    code = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.split()) > 20


def test_the_example_names_a_missing_model():
    told = run("examples/story.py", "nowhere", DRAFT)
    assert told.returncode == 1
    assert "nowhere" in told.stderr and "Traceback" not in told.stderr

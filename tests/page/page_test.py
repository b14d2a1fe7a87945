"""The pages of `tandem serve` and `tandem lab` in a browser: page_test.py --program tandem --out FOLDER

Writes screenshots to FOLDER. Exits with 77 if Selenium, Chromium or its driver is missing.
"""

import argparse
import os
import sys
import unittest

from answer_cases import AnswerPage  # noqa: F401: unittest finds them here
from chat_cases import ChatPage  # noqa: F401
from docs_cases import DocsPage  # noqa: F401
from lab_cases import LabPage  # noqa: F401
from layout_cases import LayoutPage  # noqa: F401
from list_cases import ListPage  # noqa: F401
from mark_cases import MarkPage  # noqa: F401
from models_cases import ModelsPage  # noqa: F401
from page_case import PageCase, find_browser
from race_cases import RacePage  # noqa: F401
from story_cases import StoryPage  # noqa: F401

SKIPPED = 77

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--program', required=True)
    parser.add_argument('--out', required=True)
    arguments, others = parser.parse_known_args()
    browser, missing = find_browser()
    if browser is None:
        print(f'skipped: {missing} (./dev page installs it)')
        sys.exit(SKIPPED)
    os.makedirs(arguments.out, exist_ok=True)
    PageCase.program, PageCase.out = arguments.program, arguments.out
    unittest.main(argv=[sys.argv[0], *others])

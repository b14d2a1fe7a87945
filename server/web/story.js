// The page of a model that goes on where a text ends: what it is asked, and where that is shown.

import { offerExamples, readSettings } from './form.js';
import { TextView } from './text.js';

const EXAMPLES = [
  ['The old king', 'Once upon a time there lived an old king who had three sons.'],
  ['The fox', 'A fox and a hare met at the edge of the forest. “Good morning,” said the fox,'],
  ['The little boat', 'In a small house by the sea there lived a girl who wanted a boat.'],
  ['The clever mouse', 'The mouse looked at the sleeping cat and had an idea.'],
];

const byId = (id) => document.getElementById(id);

export class Story {
  mode = 'story';

  // Arranges the page for it.
  arrange() {
    byId('prompt').value = EXAMPLES[0][1];
    offerExamples(EXAMPLES, (prompt) => {
      byId('prompt').value = prompt;
    });
  }

  isReady() {
    return true;
  }

  // The request that the form makes; every one of the lanes is to show what comes of it.
  ask(lanes) {
    const prompt = byId('prompt').value;
    for (const lane of lanes) lane.view = new TextView(lane.element, { prompt });
    return { prompt, ...readSettings() };
  }

  // What comes next needs neither what was written nor that nothing was.
  keep() {}
  takeBack() {}
  cancelEdit() {}

  adviceOn() {
    return null;
  }
}

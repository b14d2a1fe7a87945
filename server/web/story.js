// The page for a model that continues texts: it makes the request, and shows the answer.

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

  // Arranges the page for stories.
  arrange() {
    byId('prompt').value = EXAMPLES[0][1];
    offerExamples(EXAMPLES, (prompt) => {
      byId('prompt').value = prompt;
    });
  }

  isReady() {
    return true;
  }

  // Returns the request that the form describes, and prepares all lanes to show the answer.
  ask(lanes) {
    const prompt = byId('prompt').value;
    for (const lane of lanes) lane.view = new TextView(lane.element, { prompt });
    return { prompt, ...readSettings() };
  }

  // A story does not depend on earlier runs.
  keep() {}
  takeBack() {}
  cancelEdit() {}

  adviceOn() {
    return null;
  }
}

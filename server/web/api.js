// The page of the API: shows /openapi.json.

import { copyButton } from './copy.js';

function make(name, className, ...content) {
  const element = document.createElement(name);
  if (className !== '') element.className = className;
  element.append(...content);
  return element;
}

const idOf = (method, path) => `${method}-${path.replace(/[^a-z0-9]+/gi, '-')}`;

// ---- Schemas ----

let api = null; // the document

// Follows references.
function resolve(schema) {
  if (schema.$ref === undefined) return schema;
  return resolve(schema.$ref.slice(2).split('/').reduce((at, key) => at[key], api));
}

const nameOf = (schema) => schema.$ref?.split('/').at(-1) ?? schema.title ?? null;

// Describes a type in words, such as "array of integer or null".
function typeOf(schema) {
  const name = nameOf(schema);
  const { type, items, oneOf, anyOf, enum: values, const: value } = resolve(schema);
  const choices = oneOf ?? anyOf;
  if (value !== undefined) return JSON.stringify(value);
  if (values !== undefined) return values.map((one) => JSON.stringify(one)).join(' or ');
  if (choices !== undefined) return [...new Set(choices.map(typeOf))].join(' or ');
  const types = [type ?? 'any'].flat().map((one) => {
    if (one === 'array' && items !== undefined) return `array of ${typeOf(items)}`;
    return one === 'object' && name !== null ? name : one;
  });
  return types.join(' or ');
}

const LIMITS = [
  ['minimum', '≥'], ['exclusiveMinimum', '>'], ['maximum', '≤'], ['exclusiveMaximum', '<'],
  ['minItems', 'items ≥'], ['maxItems', 'items ≤'], ['minLength', 'length ≥'],
  ['maxLength', 'length ≤'],
];

function limitsOf(schema) {
  const limits = LIMITS.filter(([key]) => schema[key] !== undefined)
    .map(([key, sign]) => `${sign} ${schema[key]}`);
  if (schema.default !== undefined) limits.push(`default ${JSON.stringify(schema.default)}`);
  return limits.join(', ');
}

// Returns the object schemas within a schema: of itself, its items and its choices.
function objectsIn(schema) {
  const { properties, items, oneOf, anyOf } = resolve(schema);
  const own = properties === undefined ? [] : [schema];
  return [...own, ...[items ?? [], oneOf ?? [], anyOf ?? []].flat().flatMap(objectsIn)];
}

function rowOf(name, schema, isRequired, above) {
  const resolved = resolve(schema);
  const words = [make('code', 'field-name', name)];
  if (isRequired) words.push(' ', make('span', 'required', 'required'));
  const about = make('div', 'about', resolved.description ?? '');
  const limits = limitsOf(resolved);
  if (limits !== '') about.append(make('span', 'limits', limits));
  for (const object of objectsIn(schema)) {
    if (!above.includes(resolve(object))) about.append(moreOf(object, above));
  }
  const type = make('td', 'type', typeOf(schema));
  return make('tr', '', make('th', '', ...words), type, make('td', '', about));
}

// The fields of an object, built when they are opened.
function moreOf(schema, above) {
  const { properties } = resolve(schema);
  const count = Object.keys(properties).length;
  const words = `${nameOf(schema) ?? 'Object'}: ${count} ${count === 1 ? 'field' : 'fields'}`;
  const details = make('details', '', make('summary', '', words));
  details.addEventListener('toggle', () => {
    if (details.childElementCount === 1) details.append(tableOf(schema, above));
  });
  return details;
}

// `above`: the objects that the table is part of.
function tableOf(schema, above = []) {
  const object = resolve(schema);
  const { properties, required = [], allOf = [] } = object;
  const names = Object.keys(properties);
  const rows = [...required.filter((name) => names.includes(name)),
    ...names.filter((name) => !required.includes(name))]
    .map((name) => rowOf(name, properties[name], required.includes(name), [...above, object]));
  const table = make('table', '', make('tbody', '', ...rows));
  table.setAttribute('aria-label', `Fields of ${nameOf(schema) ?? 'the object'}`);
  const box = make('div', 'fields', table);
  for (const part of allOf) {
    if (resolve(part).description) box.append(make('p', 'hint', `${resolve(part).description}:`));
    box.append(moreOf(part, [...above, object]));
  }
  return box;
}

// ---- Operations ----

// Quotes a text for a POSIX shell.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlOf(method, path, operation, modelName) {
  const url = location.origin + path.replace('{model}', encodeURIComponent(modelName))
    .replace('{file}', 'style.css').replace('{id}', 'dt-1');
  const lines = [`curl ${url}`];
  if (method === 'delete') lines.push('-X DELETE');
  if (operation.security === undefined && isLocked) lines.push('-H "Authorization: Bearer $KEY"');
  const example = bodyOf(operation)?.example;
  if (example !== undefined) {
    lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(example))}`);
  }
  return lines.join(' \\\n  ');
}

const bodyOf = (operation) => operation.requestBody?.content['application/json'];

function codeOf(name, text) {
  const head = make('div', 'code-head', name, copyButton('Copy the command', () => text));
  const scrolls = make('div', 'scrolls', make('pre', '', make('code', '', text)));
  scrolls.tabIndex = 0;
  scrolls.setAttribute('role', 'group');
  scrolls.setAttribute('aria-label', name);
  return make('div', 'code', head, scrolls);
}

function answersOf(responses) {
  const list = make('ul', 'answers');
  const ofErrors = [];
  for (const [status, response] of Object.entries(responses)) {
    if (response.$ref !== undefined) {
      ofErrors.push(status);
      continue;
    }
    const types = Object.entries(response.content ?? {});
    const item = make('li', '', make('b', '', status), ` ${response.description}`);
    for (const [type, { schema }] of types) {
      item.append(' ', make('code', '', type));
      const objects = schema === undefined ? [] : objectsIn(schema);
      item.append(...objects.map((object) => moreOf(object, [])));
    }
    list.append(item);
  }
  if (ofErrors.length > 0) {
    const { description, content } = resolve(responses[ofErrors[0]]);
    list.append(make('li', '', make('b', '', ofErrors.join(', ')), ` ${description}`,
      moreOf(content['application/json'].schema, [])));
  }
  return list;
}

function sectionOf(method, path, operation, modelName) {
  const id = idOf(method, path);
  const verb = make('span', 'method', method.toUpperCase());
  const title = make('h2', '', verb, ' ', make('code', '', path));
  title.id = id;
  const needsKey = operation.security === undefined;
  const parts = [title, make('p', '', `${operation.summary}.`,
    ...(needsKey ? [] : [' ', make('span', 'hint', 'Needs no key.')]))];
  parts.push(codeOf('Example', curlOf(method, path, operation, modelName)));
  const schema = bodyOf(operation)?.schema;
  if (schema !== undefined) parts.push(make('h3', '', 'Request'), tableOf(schema));
  for (const { name, in: place, schema: of } of (operation.parameters ?? []).map(resolve)) {
    parts.push(make('p', 'hint', make('code', '', name), ` in the ${place}: ${typeOf(of)}`));
  }
  parts.push(make('h3', '', 'Answer'), answersOf(operation.responses));
  const section = make('section', 'card', ...parts);
  section.setAttribute('aria-labelledby', id);
  return section;
}

// ---- Start ----

let isLocked = false; // whether the server requires a key

async function start() {
  const main = document.getElementById('main');
  try {
    const [answer, models] = await Promise.all([fetch('/openapi.json'), fetch('/v1/models')]);
    if (!answer.ok) throw new Error(`the server refused (${answer.status})`);
    api = await answer.json();
    isLocked = models.status === 401;
    const modelName = models.ok ? (await models.json()).data[0].id : 'MODEL';
    document.getElementById('about').textContent = api.info.description +
      (isLocked ? ' This server requires a key.' : '');
    const all = Object.entries(api.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => [method, path, operation]));
    const isOpen = ([, , { security }]) => Number(security !== undefined);
    all.sort((a, b) => isOpen(a) - isOpen(b)); // the pages and probes come last
    document.getElementById('paths').append(make('ul', '', ...all.map(([method, path]) => {
      const link = make('a', '', make('span', 'method', method.toUpperCase()), ' ', path);
      link.href = `#${idOf(method, path)}`;
      return make('li', '', link);
    })));
    main.append(...all.map((one) => sectionOf(...one, modelName)));
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    const box = make('p', 'error', `The description of the API cannot be shown: ${error.message}`);
    box.setAttribute('role', 'alert');
    main.append(box);
  }
}

start();

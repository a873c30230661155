'use strict';
const the = (id) => document.getElementById(id);
const made = (tag, words, parent, options = {}) => {
  const node = Object.assign(document.createElement(tag), options);
  node.textContent = words;
  parent.append(node);
  return node;
};

// -- words ----------------------------------------------------------------------------------------------
const language = location.hash.endsWith('zh') ? 'zh' : 'en';
const isFrame = location.hash.startsWith('#run');  // the first page asks for runs, and shows nothing of this page
const tell = (message) => { if (isFrame) parent.postMessage(message, '*'); };
const dictionary = language === 'zh' ? JSON.parse(the('zh').textContent) : {};
const t = (text, values = {}) => (dictionary[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
function translatePage() {
  document.documentElement.lang = 'zh-CN';
  document.title = t(document.title);
  the('other').href = '#';
  for (const link of document.querySelectorAll('.home')) link.href = `zh/${link.getAttribute('href')}`;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT,
    (node) => node.parentElement.closest('script, style') ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.replace(/\s+/g, ' ').trim();
    if (text in dictionary) texts.currentNode.data = dictionary[text];
  }
  for (const node of document.querySelectorAll('main [aria-label], main [title]')) {
    for (const name of ['aria-label', 'title']) {
      if (node.hasAttribute(name)) node.setAttribute(name, t(node.getAttribute(name)));
    }
  }
}

// -- calls of the worker --------------------------------------------------------------------------------
// a page on a disk may not start a worker of modules from a blob
const worker = new Worker(`data:text/javascript,${encodeURIComponent(the('worker').textContent)}`, { type: 'module' });
const waiting = new Map();
let calls = 0;
worker.onmessage = ({ data }) => {
  if (data.state) {
    the('state').textContent = t(data.state, data.values);
    the('progress').value = data.step;
    tell({ step: data.step, state: the('state').textContent });
    return;
  }
  const { done, failed, step } = waiting.get(data.id);
  if (data.loss) { step(data.loss); return; }
  waiting.delete(data.id);
  if (data.error) failed(new Error(t(data.error))); else done(data.result);
};
worker.onerror = (event) => fail(t('This browser could not start Python: {error}', { error: event.message }));
const ask = (call, argument = null, step = () => {}) => new Promise((done, failed) => {
  waiting.set(++calls, { done, failed, step });
  worker.postMessage({ id: calls, call, argument });
});

// -- one sentence ---------------------------------------------------------------------------------------
const silent = {};  // names of attentions: the heads that are silent
let first = null;  // what was said with all heads

const isSilent = () => Object.values(silent).some((heads) => heads.length);
async function translate() {
  const text = the('text').value.trim();
  if (!text) return;
  const began = performance.now();
  try {
    const said = await ask('translate', { text, silent, language });
    const took = performance.now() - began;
    the('said').textContent = said.text || t('(nothing)');
    the('sure').textContent = t('{percent} % sure of each word, by the geometric mean; {ms} ms', { percent: Math.round(100 * Math.exp(said.score)), ms: Math.round(took) })
      + (said.unknown.length ? t('; words that it does not know: {words}', { words: said.unknown.join(' ') }) : '');
    the('attention').srcdoc = said.page;
    if (!isSilent()) first = { text, said: said.text };
    const before = first?.text === text ? t('; with all heads it said: {said}', { said: first.said }) : '';
    the('without').textContent = isSilent() ? t('Without the silent heads it says: {said}', { said: said.text }) + before : '';
  } catch (error) { the('sure').textContent = error.message; }
}

function showHeads(heads) {
  const names = { 'self_attention': 'self-attention', 'cross_attention': 'cross-attention' };
  for (const [name, count] of Object.entries(heads)) {
    const [side, , layer, kind] = name.split('.');
    const row = made('p', '', the('heads'), { className: 'heads' });
    made('span', t('{side} {layer}, {kind}', { side: t(side), layer: Number(layer) + 1, kind: t(names[kind] ?? kind) }), row);
    silent[name] = [];
    for (let head = 0; head < count; head++) {
      const button = made('button', t('head {number}', { number: head + 1 }), row, { type: 'button' });
      button.setAttribute('aria-pressed', 'false');
      button.addEventListener('click', () => {
        const off = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', String(off));
        silent[name] = off ? [...silent[name], head] : silent[name].filter((other) => other !== head);
        translate();
      });
    }
  }
}

// -- teaching -------------------------------------------------------------------------------------------
const WIDTH = 640, HEIGHT = 220, LEFT = 46, LOW = 0.001, HIGH = 20;
const across = (i, count) => LEFT + (WIDTH - LEFT - 8) * i / Math.max(1, count - 1);
const down = (loss) => 12 + (HEIGHT - 34) * Math.log(HIGH / Math.min(HIGH, Math.max(LOW, loss))) / Math.log(HIGH / LOW);
function drawLoss(losses, count) {
  const line = (key) => losses.map((step, i) => `${across(i, count).toFixed(1)},${down(step[key]).toFixed(1)}`).join(' ');
  the('new').setAttribute('points', line('new'));
  the('old').setAttribute('points', line('old'));
  const { new: fresh, old } = losses.at(-1);
  the('losses').textContent = t('Step {step} of {count}: loss of the new sentences {fresh}, of old ones {old}.',
    { step: losses.length, count, fresh: fresh.toFixed(3), old: old.toFixed(3) });
}
function drawAxis() {
  for (const loss of [10, 1, 0.1, 0.01, 0.001]) {
    const place = { x1: LEFT, x2: WIDTH - 8, y1: down(loss), y2: down(loss) };
    const rule = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    for (const [name, value] of Object.entries(place)) rule.setAttribute(name, value);
    const label = document.createElementNS('http://www.w3.org/2000/svg', 'text');
    for (const [name, value] of Object.entries({ x: LEFT - 6, y: down(loss) + 4, 'text-anchor': 'end' })) label.setAttribute(name, value);
    label.textContent = loss;
    the('axis').append(rule, label);
  }
}

const lessons = () => [...document.querySelectorAll('#lessons tr')].map((row) => {
  const [source, target] = [...row.querySelectorAll('input')].map((field) => field.value.trim());
  return { row, source, target };
}).filter(({ source, target }) => source || target);

async function examine() {
  for (const { row, source } of lessons()) {
    row.querySelector('output').textContent = (await ask('translate', { text: source, silent: {} })).text;
  }
}
async function teach() {
  const button = the('teach'), steps = 60, losses = [];
  button.disabled = the('forget').disabled = true;
  try {
    const pairs = lessons().map(({ source, target }) => [source, target]);
    await ask('teach', { pairs, steps }, (step) => { losses.push(step); drawLoss(losses, steps); });
    await examine();
    await translate();
  } catch (error) { the('losses').textContent = error.message; }
  button.disabled = the('forget').disabled = false;
}
async function forget() {
  await ask('forget');
  for (const line of ['new', 'old']) the(line).setAttribute('points', '');
  the('losses').textContent = t('The weights are those of the beginning.');
  await examine();
  await translate();
}

// -- the beginning --------------------------------------------------------------------------------------
const choose = (text) => { the('text').value = text; translate(); };
function fail(text) {
  the('state').textContent = text;
  the('progress')?.remove();
  tell({ failed: text });
}
function answer() {
  addEventListener('message', async ({ source, data: { text } }) => {
    if (source !== parent) return;
    try { tell({ run: await ask('record', { text }) }); } catch (error) { tell({ error: error.message }); }
  });
  tell({ ready: true });
}
const bytes = (text) => Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
async function start() {
  const began = performance.now();
  const parts = [...document.querySelectorAll('script[data-file]')];
  try {
    const packed = Object.fromEntries(parts.map((part) => [part.dataset.file, bytes(part.textContent)]));
    for (const part of parts) part.remove();
    const address = the('worker').dataset.address;
    const late = setTimeout(() => {
      if (address && the('progress').value < 2) the('state').textContent = t('Python has not arrived within 10 seconds. The page still waits for it.');
    }, 10000);
    await ask('start', { packed, address }).finally(() => clearTimeout(late));
    if (isFrame) { answer(); return; }
    const about = await ask('about');
    showHeads(about.heads);
    for (const text of about.examples) made('button', text, the('examples'), { type: 'button', lang: 'zh', onclick: () => choose(text) });
    for (const word of about.words) {
      made('button', word, the('words'), { type: 'button', lang: 'zh', onclick: () => { the('text').value = `${the('text').value.trim()} ${word}`.trim(); } });
    }
    drawAxis();
    await translate();
    the('state').textContent = t('Ready after {seconds} s: a Transformer of {parameters} parameters, on NumPy {numpy} {blas}, in this page.', {
      seconds: ((performance.now() - began) / 1000).toFixed(1), parameters: about.parameters.toLocaleString('en'),
      numpy: about.numpy, blas: t(about.blas ? 'with a BLAS' : 'without a BLAS') });
    the('progress').remove();
    for (const control of document.querySelectorAll('fieldset')) control.disabled = false;
    document.body.dataset.ready = 'true';
    await examine();
  } catch (error) { fail(t('It could not start: {error}', { error: error.message })); }
}
window.addEventListener('hashchange', () => location.reload());
if (language === 'zh') translatePage();
the('say').addEventListener('submit', (event) => { event.preventDefault(); translate(); });
the('teach').addEventListener('click', teach);
the('forget').addEventListener('click', forget);
the('clear').addEventListener('click', () => { the('text').value = ''; the('text').focus(); });
start();

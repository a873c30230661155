'use strict';
const the = (id) => document.getElementById(id);
const made = (tag, words, parent, options = {}) => {
  const node = Object.assign(document.createElement(tag), options);
  node.textContent = words;
  parent.append(node);
  return node;
};

// -- calls of the worker --------------------------------------------------------------------------------
const worker = new Worker(URL.createObjectURL(new Blob([the('worker').textContent], { type: 'text/javascript' })));
const waiting = new Map();
let calls = 0;
worker.onmessage = ({ data }) => {
  if (data.state) { the('state').textContent = data.state; return; }
  const { done, failed, step } = waiting.get(data.id);
  if (data.step) { step(data.step); return; }
  waiting.delete(data.id);
  if (data.error) failed(new Error(data.error)); else done(data.result);
};
worker.onerror = (event) => { the('state').textContent = `This browser could not start Python: ${event.message}`; };
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
    const said = await ask('translate', { text, silent });
    const took = performance.now() - began;
    the('said').textContent = said.text || '(nothing)';
    the('sure').textContent = `${Math.round(100 * Math.exp(said.score))} % sure of each word, by the geometric mean; ${Math.round(took)} ms`
      + (said.unknown.length ? `; words that it does not know: ${said.unknown.join(' ')}` : '');
    the('attention').srcdoc = said.page;
    if (!isSilent()) first = { text, said: said.text };
    const before = first?.text === text ? `; with all heads it said: ${first.said}` : '';
    the('without').textContent = isSilent() ? `Without the silent heads it says: ${said.text}${before}` : '';
  } catch (error) { the('sure').textContent = error.message; }
}

function showHeads(heads) {
  const names = { 'self_attention': 'self-attention', 'cross_attention': 'cross-attention' };
  for (const [name, count] of Object.entries(heads)) {
    const [side, , layer, kind] = name.split('.');
    const row = made('p', '', the('heads'), { className: 'heads' });
    made('span', `${side} ${Number(layer) + 1}, ${names[kind] ?? kind}`, row);
    silent[name] = [];
    for (let head = 0; head < count; head++) {
      const button = made('button', `head ${head + 1}`, row, { type: 'button' });
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
  the('losses').textContent = `Step ${losses.length} of ${count}: loss of the new sentences ${fresh.toFixed(3)}, of old ones ${old.toFixed(3)}.`;
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
  the('losses').textContent = 'The weights are those of the beginning.';
  await examine();
  await translate();
}

// -- the beginning --------------------------------------------------------------------------------------
const choose = (text) => { the('text').value = text; translate(); };
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
async function start() {
  const began = performance.now();
  const parts = [...document.querySelectorAll('script[data-file]')];
  try {
    await ask('start', Object.fromEntries(parts.map((part) => [part.dataset.file, bytes(part.textContent)])));
    for (const part of parts) part.remove();
    const about = await ask('about');
    showHeads(about.heads);
    for (const text of about.examples) made('button', text, the('examples'), { type: 'button', lang: 'zh', onclick: () => choose(text) });
    for (const word of about.words) {
      made('button', word, the('words'), { type: 'button', lang: 'zh', onclick: () => { the('text').value = `${the('text').value.trim()} ${word}`.trim(); } });
    }
    drawAxis();
    await translate();
    await examine();
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    the('state').textContent = `Ready after ${seconds} s: a Transformer of ${about.parameters.toLocaleString('en')} parameters, on NumPy ${about.numpy}${about.blas ? '' : ' without a BLAS'}, in this page.`;
    for (const control of document.querySelectorAll('fieldset')) control.disabled = false;
    document.body.dataset.ready = 'true';
  } catch (error) { the('state').textContent = `It could not start: ${error.message}`; }
}
the('say').addEventListener('submit', (event) => { event.preventDefault(); translate(); });
the('teach').addEventListener('click', teach);
the('forget').addEventListener('click', forget);
the('clear').addEventListener('click', () => { the('text').value = ''; the('text').focus(); });
start();

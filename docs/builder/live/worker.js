'use strict';
// Python in a worker: everything that Pyodide asks for is in the page already.
const files = {};
let asked;

const kinds = { wasm: 'application/wasm', json: 'application/json' };
self.fetch = async (address) => {
  const name = String(address.url ?? address).split('/').pop();
  if (!(name in files)) throw new TypeError(`${name} is not in this page`);
  return new Response(files[name], { headers: { 'Content-Type': kinds[name.split('.').pop()] ?? 'application/octet-stream' } });
};

const unzipped = (bytes) => new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
const run = (name) => importScripts(URL.createObjectURL(new Blob([files[name]], { type: 'text/javascript' })));
const say = (message) => postMessage(message);

async function start(zipped) {
  say({ state: 'Unpacking …' });
  for (const [name, bytes] of Object.entries(zipped)) files[name] = await unzipped(bytes);
  say({ state: 'Starting Python …' });
  run('pyodide.asm.js');
  run('pyodide.js');
  const pyodide = await self.loadPyodide({ indexURL: 'file:///pyodide/', stdout: () => {}, stderr: console.log });
  say({ state: 'Starting NumPy …' });
  await pyodide.loadPackage('numpy', { messageCallback: () => {} });
  say({ state: 'Starting minigrad …' });
  pyodide.unpackArchive(files['library.zip'], 'zip', { extractDir: '/library' });
  pyodide.runPython('import sys; sys.path.insert(0, "/library")');
  asked = pyodide.pyimport('asked').Asked('/library/run');
}

onmessage = async ({ data: { id, call, argument } }) => {
  try {
    if (call === 'start') await start(argument);
    else if (call === 'teach') {
      for (const step of asked.teach(JSON.stringify(argument))) say({ id, step: JSON.parse(step) });
    } else {
      say({ id, result: JSON.parse(asked[call](JSON.stringify(argument))) });
      return;
    }
    say({ id, result: null });
  } catch (error) {
    say({ id, error: String(error.message ?? error).trim().split('\n').pop() });
  }
};

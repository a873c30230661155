// Python in a worker: what Pyodide asks for is in the page, or at an address of the network.
const files = {};
let asked;

const kinds = { wasm: 'application/wasm', json: 'application/json' };
const fromNetwork = self.fetch;
self.fetch = async (request, options) => {
  const name = String(request.url ?? request).split('/').pop();
  if (!(name in files)) return fromNetwork(request, options);
  return new Response(files[name], { headers: { 'Content-Type': kinds[name.split('.').pop()] ?? 'application/octet-stream' } });
};

const unzipped = (bytes) => new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
const load = (name, address) => import(name in files ? URL.createObjectURL(new Blob([files[name]], { type: 'text/javascript' })) : address + name);
const say = (message) => postMessage(message);

async function start({ packed, address }) {
  say({ step: 1, state: address ? 'Loading Python from {address} …' : 'Unpacking Python …', values: { address } });
  await Promise.all(Object.entries(packed).map(async ([name, bytes]) => { files[name] = await unzipped(bytes); }));
  const [{ loadPyodide }, { default: createPyodideModule }] = await Promise.all(['pyodide.mjs', 'pyodide.asm.mjs'].map((name) => load(name, address)));
  say({ step: 2, state: 'Starting Python …' });
  const indexURL = address || 'file:///pyodide/';
  const pyodide = await loadPyodide({ indexURL, createPyodideModule, stdout: () => {}, stderr: console.log });
  say({ step: 3, state: 'Starting NumPy …' });
  await pyodide.loadPackage('numpy', { messageCallback: () => {} });
  say({ step: 4, state: 'Starting the library and reading the weights …' });
  pyodide.unpackArchive(files['library.zip'], 'zip', { extractDir: '/library' });
  pyodide.runPython('import sys; sys.path.insert(0, "/library")');
  asked = pyodide.pyimport('asked').Asked('/library/run');
  for (const name in files) delete files[name];
  say({ step: 5, state: 'Translating the first sentence …' });
}

onmessage = async ({ data: { id, call, argument } }) => {
  try {
    if (call === 'start') await start(argument);
    else if (call === 'teach') {
      for (const step of asked.teach(JSON.stringify(argument))) say({ id, loss: JSON.parse(step) });
    } else {
      say({ id, result: JSON.parse(asked[call](JSON.stringify(argument))) });
      return;
    }
    say({ id, result: null });
  } catch (error) {
    const isNetwork = call === 'start' && argument.address && error instanceof TypeError;
    say({ id, error: isNetwork ? 'Python cannot be loaded. Is there a network?' : String(error.message ?? error).trim().split('\n').pop() });
  }
};

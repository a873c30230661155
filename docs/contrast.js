const parts = (colour) => {
  const canvas = parts.canvas ??= new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].map((c) => c / 255);
};
const light = (rgb) => rgb.slice(0, 3).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour[3]) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reduceRight((below, layer) => over(layer, below), parts(getComputedStyle(document.body).backgroundColor));
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Map();
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim();
  const node = walker.currentNode.parentElement;
  if (!text || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (['SCRIPT', 'STYLE', 'TITLE'].includes(node.tagName) || node.closest('svg .box, svg g')) continue;
  const style = getComputedStyle(node);
  const key = [node.tagName, node.className?.baseVal ?? node.className, style.color, node.parentElement?.className].join();
  if (seen.has(key)) continue;
  seen.set(key, true);
  const ground = behind(node);
  const ink = over(parts(node.closest('svg') ? style.fill : style.color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className?.baseVal ?? node.className}: ${text.slice(0, 40)}`);
}
return bad;

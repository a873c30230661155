// Figures, code and frames of which a reader does not see all, inside boxes that scroll, too.
const shown = (node) => node.checkVisibility() && node.getBoundingClientRect().width > 0;
const name = (node) => `${node.tagName.toLowerCase()} "${(node.getAttribute('aria-label') ?? node.alt ?? node.textContent).trim().replace(/\s+/g, ' ').slice(0, 40)}"`;
const found = [];
for (const node of document.querySelectorAll('article svg[role=img], article img, article pre, .one-of svg')) {
  const isCode = node.tagName === 'PRE';
  if (!shown(node) || node.closest('.sd-card')) continue;
  const box = node.getBoundingClientRect();
  let hidden = isCode ? node.scrollWidth - node.clientWidth : 0;
  for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
    if (getComputedStyle(at).overflowX === 'visible') continue;
    const edge = at.getBoundingClientRect();
    hidden = Math.max(hidden, box.right - edge.right, edge.left - box.left, isCode ? at.scrollWidth - at.clientWidth : 0);
  }
  hidden = Math.max(hidden, box.right - innerWidth);
  if (hidden > 1) found.push(`${name(node)} loses ${Math.round(hidden)} px`);
}
// a frame grows with its page a moment after its width changes
return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
  for (const frame of document.querySelectorAll('article iframe')) {
    const page = frame.contentDocument?.documentElement; // null if it is of another origin
    const hidden = page && shown(frame) ? page.scrollHeight - frame.clientHeight : 0;
    if (hidden > 1) found.push(`iframe "${frame.title}" loses ${Math.round(hidden)} px of its height`);
  }
  resolve(found);
})));

const wide = document.scrollingElement.scrollWidth - innerWidth;
if (wide <= 0) return [];
const out = [...document.body.querySelectorAll('*')].filter((node) => {
  if (node.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let at = node.parentElement; at; at = at.parentElement) {
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(at).overflowX)) return false;
  }
  return true;
});
return [`${wide} px too wide: ${out.slice(-2).map((n) => n.tagName + '.' + (n.className.baseVal ?? n.className)).join(', ')}`];

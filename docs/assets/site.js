'use strict';
// The theme, chosen by hand and kept; on paper, all answers are open.
const root = document.documentElement;
try { root.style.colorScheme = localStorage.getItem('theme') ?? ''; } catch { /* a page from a file may have no storage */ }
document.getElementById('theme').addEventListener('click', () => {
  const dark = root.style.colorScheme ? root.style.colorScheme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.style.colorScheme = dark ? 'light' : 'dark';
  try { localStorage.setItem('theme', root.style.colorScheme); } catch { /* as above */ }
});
const menu = document.querySelector('nav.site details');
const wide = matchMedia('(min-width: 70rem)');
const unfold = () => { menu.open = wide.matches; };
wide.addEventListener('change', unfold);
unfold();
addEventListener('beforeprint', () => { for (const answer of document.querySelectorAll('details.ask')) answer.open = true; });

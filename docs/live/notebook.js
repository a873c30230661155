// In the page of a live notebook: if Python cannot be loaded, offer the recorded lesson and the download.
(async () => {
  const { python, seconds } = document.currentScript.dataset;
  const [, language, name] = new URLSearchParams(location.search).get('path')?.match(/^(en|zh)\/(\w+)\.ipynb$/) ?? [];
  if (!name) return;
  const isOnDisk = location.protocol === 'file:';
  try {
    if (isOnDisk) throw new Error('JupyterLite needs a server');
    const answer = await fetch(python, { signal: AbortSignal.timeout(1000 * seconds) });
    if (!answer.ok) throw new Error(answer.statusText);
    await answer.text();
  } catch {
    const [reason, read, download] = language === 'zh' ? [
      isOnDisk ? '磁盘上的页面不能运行笔记本，需要一个服务器。' : '无法载入 Python，所以这个笔记本不能运行。是否没有网络？',
      '阅读带有输出的这一课', '下载全部笔记本',
    ] : [
      isOnDisk ? 'Pages on a disk cannot run notebooks without a server.' : 'Python cannot be loaded, so this notebook does not run. Is there a network?',
      'Read the lesson with its recorded output', 'Download all notebooks',
    ];
    const course = `../../${language === 'zh' ? 'zh/' : ''}course`;
    const bar = document.createElement('p');
    bar.setAttribute('role', 'alert');
    bar.lang = language === 'zh' ? 'zh-CN' : 'en';
    bar.style.cssText = 'position: fixed; inset: auto 0 0; z-index: 99999; margin: 0; padding: 12px 16px; background: #fdebdd; color: #1b1f24; font: 16px/1.5 system-ui, sans-serif; border-top: 2px solid #9a3b00';
    const link = (text, options) => Object.assign(document.createElement('a'), { textContent: text, style: 'color: #0b5c93; text-decoration: underline', ...options });
    bar.append(reason, ' ', link(read, { href: `${course}/${name}.html` }), ' · ', link(download, { href: `${course}/course.zip` }));
    document.documentElement.append(bar);
  }
})();

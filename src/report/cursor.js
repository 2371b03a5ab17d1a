document.addEventListener("pointermove", event => {
  const plot = event.target.closest && event.target.closest(".plot");
  const root = document.documentElement;
  root.classList.toggle("pointing", Boolean(plot));
  if (!plot) return;
  const box = plot.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  root.style.setProperty("--cursor", 100 * share + "%");
});

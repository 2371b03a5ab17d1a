// Shows the page anew without losing the place: what was unfolded stays unfolded. Without scripts the whole page is loaded again.
const every = 1000 * Number(document.documentElement.dataset.refresh);
if (every > 0) setInterval(async () => {
  if (document.hidden || !getSelection().isCollapsed) return;
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) throw answer.status;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main"), next = fresh.querySelector("main");
    for (const shown of main.querySelectorAll("details[id]")) {
      const same = next.querySelector("#" + shown.id);
      if (same) same.open = shown.open;
    }
    main.replaceWith(next);
    document.title = fresh.title;
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
}, every);

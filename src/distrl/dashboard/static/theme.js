// Before the first paint, so that nothing flashes: the theme that was chosen, or else that of the system.
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("distrl-theme") || ""; } catch { /* storage is switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

// Applies the chosen theme before the first paint; without a choice, the page follows the operating system.
"use strict";
(() => {
  const key = "cfo-theme";
  const root = document.documentElement;
  const read = () => { try { return localStorage.getItem(key) || ""; } catch { return ""; } };
  const apply = (theme) => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; };
  apply(read());
  addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = read();
    select.addEventListener("change", () => {
      apply(select.value);
      try { localStorage.setItem(key, select.value); } catch { /* without storage, the choice lasts for this page */ }
    });
  });
})();

// Draws the charts and makes the tables sortable; everything else is done by the libraries.
const specs = JSON.parse(document.getElementById("charts").textContent);
const options = { actions: false, ast: true, renderer: "svg" };
const charts = Object.entries(specs).map(([name, spec]) =>
  vegaEmbed(document.getElementById(`${name}-chart`), spec, options)
);
const tables = [...document.querySelectorAll("table")].map((table) => {
  const [column, direction] = (table.dataset.sort ?? "").split(",");
  const title = document.getElementById(table.getAttribute("aria-labelledby")).textContent;
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = table.tBodies[0].rows;
  for (const row of rows) titles.forEach((one, i) => { row.cells[i].dataset.title = one; });
  const made = new DataTable(table, {
    order: direction ? [[Number(column), direction]] : [],
    autoWidth: false,
    info: rows.length > 25,
    searching: rows.length > 10,
    paging: rows.length > 25,
    pageLength: 25,
    lengthMenu: [25, 100, 1000, { label: "all", value: -1 }],
    layout: { topStart: "search", topEnd: null, bottomStart: "info", bottomEnd: ["pageLength", "paging"] },
    language: { search: "Filter ", lengthMenu: "Rows _MENU_", info: "_START_ to _END_ of _TOTAL_ rows",
      infoFiltered: "(of _MAX_)", infoEmpty: "no row", zeroRecords: "No row has this." },
  });
  made.table().container().querySelector("nav")?.setAttribute("aria-label", `Pages of ${title}`);
  return made;
});
const PRINTED = 200;
window.addEventListener("beforeprint", () => tables.forEach((one) => {
  if (one.page.info().recordsDisplay <= PRINTED) one.page.len(-1).draw();
}));
await Promise.all(charts);
// The figure's label says what it shows, the tables hold its numbers.
for (const drawing of document.querySelectorAll(".chart svg")) {
  drawing.setAttribute("aria-hidden", "true");
}
document.body.dataset.drawn = "true";

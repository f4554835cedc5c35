// Draws the charts and makes the tables sortable; everything else is done by the libraries.
const specs = JSON.parse(document.getElementById("charts").textContent);
const options = { actions: false, ast: true, renderer: "svg" };
const charts = Object.entries(specs).map(([name, spec]) =>
  vegaEmbed(document.getElementById(`${name}-chart`), spec, options)
);
const tables = [...document.querySelectorAll("table")].map((table) => {
  const [column, direction] = (table.dataset.sort ?? "").split(",");
  const several = table.tBodies[0].rows.length > 10;
  return new DataTable(table, {
    order: direction ? [[Number(column), direction]] : [],
    autoWidth: false,
    info: several,
    searching: several,
    paging: several,
    pageLength: 25,
    lengthMenu: [25, 100, 1000, { label: "all", value: -1 }],
    layout: { topStart: "search", topEnd: null, bottomStart: "info", bottomEnd: ["pageLength", "paging"] },
    language: { search: "Filter ", lengthMenu: "Rows _MENU_", info: "_START_ to _END_ of _TOTAL_ rows",
      infoFiltered: "(of _MAX_)", infoEmpty: "no row", zeroRecords: "No row has this." },
  });
});
const PRINTED = 200;
window.addEventListener("beforeprint", () => tables.forEach((one) => {
  if (one.page.info().recordsDisplay <= PRINTED) one.page.len(-1).draw();
}));
await Promise.all(charts);
document.body.dataset.drawn = "true";

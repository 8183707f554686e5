// Make studio/web/vendor from the packages of tests/node: one minified module per file of this folder, the licences of
// what is in it, and vendor.toml. `node build.mjs [FOLDER]`, after `npm ci`; the bytes depend only on package-lock.json.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const MODULES = {
  preact: ["preact", "@preact/signals", "@preact/signals-core", "htm"],
  diff: ["diff"],
};

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? join(here, "../../../studio/web/vendor");

/** Return the description of a package as rows of vendor.toml. */
function describe(name) {
  const folder = join(here, "../node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const licenceFile = `${name.replace("@", "").replace("/", "-")}.LICENSE.txt`;
  writeFileSync(join(target, licenceFile), readFileSync(join(folder, "LICENSE")));
  const source = `https://registry.npmjs.org/${name}/-/${name.split("/").at(-1)}-${version}.tgz`;
  return { name, version, license, licence_file: licenceFile, source };
}

/** Return the names of the packages whose code is in a bundle. */
function packagesOf({ inputs }) {
  const paths = Object.keys(inputs).map((path) => path.split("node_modules/")[1]).filter(Boolean);
  return new Set(paths.map((path) => path.split("/").slice(0, path.startsWith("@") ? 2 : 1).join("/")));
}

/** Write one module and return its table of vendor.toml. */
async function make(name, packages) {
  const rows = packages.map(describe);
  const title = rows.map((row) => `${row.name} ${row.version} (${row.license})`).join(", ");
  const { metafile, outputFiles: [file] } = await build({
    entryPoints: [join(here, `${name}.js`)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none", // the licences are in files beside it
    banner: { js: `// ${title}; see vendor.toml.` },
    metafile: true,
    write: false,
    tsconfigRaw: {}, // not that of the page
  });
  const found = packagesOf(metafile);
  if (found.size !== packages.length || packages.some((each) => !found.has(each))) {
    throw new Error(`${name}.js contains ${[...found]}; list exactly these in MODULES`);
  }
  writeFileSync(join(target, `${name}.js`), file.contents);
  const table = [`["${name}.js"]`, `sha256 = "${createHash("sha256").update(file.contents).digest("hex")}"`];
  for (const row of rows) {
    table.push("", `[["${name}.js".packages]]`, ...Object.entries(row).map(([key, value]) => `${key} = "${value}"`));
  }
  return table.join("\n");
}

mkdirSync(target, { recursive: true });
const tables = [];
for (const [name, packages] of Object.entries(MODULES)) tables.push(await make(name, packages));
const header = "# Foreign code of the page, made from npm packages by tests/node/vendor/build.mjs.";
writeFileSync(join(target, "vendor.toml"), `${[header, ...tables].join("\n\n")}\n`);

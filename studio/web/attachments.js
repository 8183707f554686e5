// The files attached to the next message: picked, dropped or pasted; checked against limits; listed.
// The limits are those of the server, which also checks what the page cannot and reports it in its error message.

const MiB = 1024 * 1024;
const MAX_FILES = 20;
const MAX_TOTAL_BYTES = 16 * MiB;
const KINDS = {
  image: { maxBytes: 5 * MiB, label: "an image" },
  document: { maxBytes: 12 * MiB, label: "a PDF" },
  text: { maxBytes: 512 * 1024, label: "a text file" },
};
const SIGNATURES = [["image", /^\x89PNG\r\n|^\xff\xd8\xff|^GIF8[79]a|^RIFF[^]{4}WEBP/], ["document", /^%PDF-/]];

export class Attachments {
  /** List files in `list`; show in `errorLine` why a file cannot be attached. */
  constructor(list, errorLine) {
    this.list = list;
    this.errorLine = errorLine;
    this.files = []; // {name, media_type, size, data}, data in base64
    this.loaded = Promise.resolve(); // resolved when all added files are read
  }

  /** Attach files, one after the other; those that cannot be attached are left out and the first error is shown. */
  add(files) {
    this.loaded = this.loaded.then(() => this.addAll(files));
    return this.loaded;
  }

  async addAll(files) {
    this.showError("");
    for (const file of files) {
      try {
        await this.addOne(file);
      } catch (error) {
        if (!this.errorLine.textContent) this.showError(error.message);
      }
    }
  }

  async addOne(file) {
    const { name, size } = file;
    const { maxBytes, label } = KINDS[await kindOf(file)];
    if (size > maxBytes) throw new Error(`${name} has ${formatSize(size)}; ${label} may have ${formatSize(maxBytes)}.`);
    if (this.files.length >= MAX_FILES) {
      throw new Error(`${name} is one too many: a message may have ${MAX_FILES} files.`);
    }
    if (this.files.reduce((sum, other) => sum + other.size, size) > MAX_TOTAL_BYTES) {
      throw new Error(`${name} does not fit: the files of a message may have ${formatSize(MAX_TOTAL_BYTES)} in total.`);
    }
    const data = await base64(file);
    this.set([...this.files, { name, media_type: file.type || null, size, data }]);
  }

  /** Remove all files and return them; `set` restores them. */
  takeAll() {
    const files = this.files;
    this.set([]);
    this.showError("");
    return files;
  }

  set(files) {
    this.files = files;
    this.list.hidden = !files.length;
    this.list.replaceChildren(...files.map((file) => this.row(file)));
  }

  row(file) {
    const row = document.createElement("li");
    const remove = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    remove.addEventListener("click", () => this.set(this.files.filter((other) => other !== file)));
    row.append(fileLabel(file), remove);
    return row;
  }

  showError(text) {
    this.errorLine.textContent = text;
    this.errorLine.hidden = !text;
  }
}

/** The name and size of a file, on one line. */
export const fileLabel = ({ name, size }) => `${name} (${formatSize(size)})`;

/** Return the files of a paste, none for rich text: office programs add a picture of the text. */
export function pastedFiles(clipboard) {
  const isText = ["text/plain", "text/html"].every((type) => clipboard.types.includes(type));
  return isText ? [] : [...clipboard.files];
}

function formatSize(bytes) {
  if (bytes < 1024) return `${bytes} byte${bytes === 1 ? "" : "s"}`;
  const [unit, size] = bytes < MiB ? ["KiB", bytes / 1024] : ["MiB", bytes / MiB];
  return `${Number.isInteger(size) ? size : (Math.ceil(size * 100) / 100).toFixed(2)} ${unit}`;
}

async function kindOf(file) {
  try {
    const start = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
    return SIGNATURES.find(([, pattern]) => pattern.test(start))?.[0] ?? "text";
  } catch {
    throw new Error(`${file.name} cannot be read; folders cannot be attached.`);
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

// The files that go along with the next message: picked, dropped or pasted, shown, refused where they are too large.
// The limits are the server's; what the page does not see, the server refuses in its own words.

const MiB = 1024 * 1024;
const MOST = 20;
const TOGETHER = 16 * MiB;
const KINDS = {
  image: { most: 5 * MiB, called: "an image" },
  document: { most: 12 * MiB, called: "a PDF" },
  text: { most: 512 * 1024, called: "a text file" },
};
const MAGIC = [["image", /^\x89PNG\r\n|^\xff\xd8\xff|^GIF8[79]a|^RIFF[^]{4}WEBP/], ["document", /^%PDF-/]];

export class Attachments {
  /** Shows files in `list`, and in `refusal` why one of them cannot go along. */
  constructor(list, refusal) {
    this.list = list;
    this.refusal = refusal;
    this.files = []; // {name, media_type, size, data}, data in base64
    this.ready = Promise.resolve(); // when all that were added are read
  }

  /** Take files in, one after the other; the first that cannot go along is said, the others are taken. */
  add(files) {
    this.ready = this.ready.then(() => this.addAll(files));
    return this.ready;
  }

  async addAll(files) {
    this.refuse("");
    for (const file of files) {
      try {
        await this.addOne(file);
      } catch (error) {
        if (!this.refusal.textContent) this.refuse(error.message);
      }
    }
  }

  async addOne(file) {
    const { name, size } = file;
    const { most, called } = KINDS[await kindOf(file)];
    if (size > most) throw new Error(`${name} has ${sizeOf(size)}; ${called} may have ${sizeOf(most)}.`);
    if (this.files.length >= MOST) throw new Error(`${name} is one too many: ${MOST} files may go with a message.`);
    if (this.files.reduce((sum, other) => sum + other.size, size) > TOGETHER) {
      throw new Error(`${name} does not fit: the files of a message may have ${sizeOf(TOGETHER)} together.`);
    }
    const data = await base64(file);
    this.set([...this.files, { name, media_type: file.type || null, size, data }]);
  }

  /** The files, which are shown no more; `set` gives them back. */
  take() {
    const files = this.files;
    this.set([]);
    this.refuse("");
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
    row.append(describe(file), remove);
    return row;
  }

  refuse(sentence) {
    this.refusal.textContent = sentence;
    this.refusal.hidden = !sentence;
  }
}

/** Name and size of a file, as one line. */
export const describe = ({ name, size }) => `${name} (${sizeOf(size)})`;

/** Files of a paste, none where it is rich text that merely brings a picture of itself. */
export function pasted(clipboard) {
  const isText = ["text/plain", "text/html"].every((type) => clipboard.types.includes(type));
  return isText ? [] : [...clipboard.files];
}

function sizeOf(bytes) {
  if (bytes < 1024) return `${bytes} byte${bytes === 1 ? "" : "s"}`;
  const [unit, size] = bytes < MiB ? ["KiB", bytes / 1024] : ["MiB", bytes / MiB];
  return `${Number.isInteger(size) ? size : (Math.ceil(size * 100) / 100).toFixed(2)} ${unit}`;
}

async function kindOf(file) {
  try {
    const first = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
    return MAGIC.find(([, pattern]) => pattern.test(first))?.[0] ?? "text";
  } catch {
    throw new Error(`${file.name} cannot be read; a folder cannot go along.`);
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

// The files that live in a session, from its `artifact` events: each revision while it grows, and as it is stored.

/** A revision of a file; `text` is null while only the server has the content, and of a file that is no text. */
class Revision {
  constructor(path, number, turnId) {
    Object.assign(this, { path, number, turnId, text: null, characters: 0, isGrowing: true });
    Object.assign(this, { size: null, sha256: null, mediaType: typeOf(path) });
  }

  add({ delta, offset }) {
    if (offset !== this.characters || (offset > 0 && this.text === null)) { this.lose(); return; }
    this.text = (this.text ?? "") + delta;
    for (const _ of delta) this.characters += 1; // offsets count code points
  }

  /** Forget a text of which something is missing: the stored file is loaded in its place. */
  lose() {
    this.text = null;
    this.characters = -1;
  }

  finish({ content, sha256, size, media_type }) {
    this.isGrowing = false;
    Object.assign(this, { sha256, size, mediaType: media_type ?? this.mediaType });
    if (content !== undefined) this.text = content;
    if (this.text !== null && new TextEncoder().encode(this.text).length !== size) this.text = null;
  }
}

const TYPES = { html: "text/html", htm: "text/html", svg: "image/svg+xml" };
const typeOf = (path) => TYPES[/\.(\w+)$/.exec(path)?.[1].toLowerCase()] ?? "text/plain";

export class SessionFiles {
  constructor() { this.clear(); }

  clear() {
    this.files = new Map(); // by path: revisions by their number
    this.current = null; // the numbers of the session's revisions by path, null while only events tell of them
  }

  /** Apply an `artifact` event; return its revision, or null if nothing of it is stored. */
  apply(data, turnId) {
    const { path, revision: number = 1 } = data;
    if (!this.files.has(path)) this.files.set(path, new Map());
    const revisions = this.files.get(path);
    if (data.dropped) { this.drop(path, number); return null; }
    if (!revisions.has(number)) revisions.set(number, new Revision(path, number, turnId));
    const revision = revisions.get(number);
    if (data.delta !== undefined) revision.add(data);
    if (data.final) revision.finish(data);
    else if (data.content !== undefined) revision.text = data.content;
    if (data.final) this.current?.set(path, number);
    return revision;
  }

  /** Take the revisions of an option whose files have become the session's. */
  adopt({ files }) {
    for (const [path, revisions] of files) this.files.set(path, new Map([...this.files.get(path) ?? [], ...revisions]));
  }

  /** A turn has ended: what still grows was not stored. Return true if there was any. */
  endTurn(turnId) {
    const unfinished = [...this.all()].filter((revision) => revision.isGrowing && revision.turnId === turnId);
    for (const { path, number } of unfinished) this.drop(path, number);
    return unfinished.length > 0;
  }

  drop(path, number) {
    const revisions = this.files.get(path);
    revisions.delete(number);
    if (!revisions.size) this.files.delete(path);
  }

  /** Take the server's list of the session's files, which a rewind or a pick has changed. */
  setListed(artifacts) {
    this.current = new Map(artifacts.map(({ path, revision }) => [path, revision]));
    for (const item of artifacts) {
      const known = this.files.get(item.path)?.get(item.revision);
      if (!known || known.isGrowing || known.sha256 !== item.sha256) {
        known?.lose();
        this.apply({ ...item, final: true }, null);
      }
    }
  }

  /** Yield every revision that is known. */
  *all() {
    for (const revisions of this.files.values()) yield* revisions.values();
  }

  /** Return the paths of the session's files in order, those that grow included. */
  paths() {
    return [...this.files.keys()].filter((path) => this.latest(path)).sort();
  }

  /** Return the revision that is the session's now, or the one that grows; null if the path is no file any more. */
  latest(path) {
    const revisions = this.files.get(path);
    if (!revisions) return null;
    const last = revisions.get(Math.max(...revisions.keys()));
    if (last.isGrowing || this.current === null) return last;
    return revisions.get(this.current.get(path)) ?? null;
  }

  /** Return the revisions of a path, the oldest first. */
  revisions(path) {
    return [...(this.files.get(path)?.values() ?? [])].sort((one, other) => one.number - other.number);
  }
}

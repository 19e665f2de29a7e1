'use strict';
/**
 * Lean's terms as text: what the author writes and the judge reads (replay.js).
 *
 * Each line is a JSON array: a word, then the items that `LINES` says. A reference is the index of
 * an earlier line of the same kind: of names and levels from 1 (0 is the anonymous name, and level
 * zero), of expressions from 0. Texts are lists of code points, so that no byte has two readings.
 *
 * What the kernel does not look at is left out: metadata, names of bound variables, how they are
 * bound. What is shared in Lean is shared here. Export.lean has the same for a native Lean.
 */
const { box } = require('./runtime.js');
const { Refusal, keyOf } = require('./refusal.js');

/** The kinds of the items of each line, by its first word. */
const LINES = {
  name: { str: ['name', 'text'], num: ['name', 'number'] },
  level: { succ: ['level'], max: ['level', 'level'], imax: ['level', 'level'], param: ['name'] },
  expression: {
    bvar: ['bvar'],
    sort: ['level'],
    const: ['name', 'levels'],
    app: ['expression', 'expression'],
    lambda: ['expression', 'expression'], // the variable's type, the body
    forall: ['expression', 'expression'],
    let: ['expression', 'expression', 'expression'], // type, value, body
    nat: ['digits'],
    text: ['text'],
    proj: ['name', 'number', 'expression'], // of a structure, which field, of what
  },
  // Name, universe parameters, type, value. The last line is the theorem's value.
  constant: {
    def: ['name', 'names', 'expression', 'expression', 'hint'],
    theorem: ['name', 'names', 'expression', 'expression'],
    opaque: ['name', 'names', 'expression', 'expression'],
  },
  end: { proof: ['expression'] },
};
const HINTS = ['opaque', 'abbrev']; // of a definition; or a number, its height
const MAX_LINES = 2000000; // a proof has some thousand

// Lean's constructors in their order.
const LEVELS = ['zero', 'succ', 'max', 'imax', 'param', 'mvar'];
const EXPRESSIONS = [
  'bvar', 'fvar', 'mvar', 'sort', 'const', 'app', 'lambda', 'forall', 'let', 'lit', 'mdata', 'proj',
];
const BINDERS = new Set(['lambda', 'forall', 'let']); // their first field is a variable's name
const KEYWORDS = { definition: 'def', theorem: 'theorem', opaque: 'opaque' };

const codePoints = (text) => Array.from(text, (character) => character.codePointAt(0));

/** Writes what lies in the memory of `runtime`, whatever it is: the reader must be strict. */
class Exporter {
  constructor(runtime) {
    this.rt = runtime;
    this.lines = [];
    // By kind: the references of what was written, by address, and the next one.
    this.written = { name: new Map([[box(0), 0]]), level: new Map(), expression: new Map() };
    this.next = { name: 1, level: 1, expression: 0 };
    this.uses = new Set(); // addresses of the names of constants that expressions mention
  }

  /**
   * Write the type and value of a ConstantInfo that is a definition, a theorem or an opaque
   * constant. `uses` are the addresses of the names of the constants that they mention.
   */
  open(constant, kind) {
    const { rt } = this;
    const declaration = rt.field(constant, 0);
    const head = rt.field(declaration, 0);
    this.uses = new Set();
    return {
      keyword: KEYWORDS[kind],
      name: rt.field(head, 0),
      params: rt.field(head, 1),
      type: this.reference('expression', rt.field(head, 2)),
      value: this.reference('expression', rt.field(declaration, 1)),
      hints: kind === 'definition' ? [this.item('hint', rt.field(declaration, 2))] : [],
      uses: this.uses,
    };
  }

  /** Write a constant that was opened. */
  declare({ keyword, name, params, type, value, hints }) {
    const head = [this.item('name', name), this.item('names', params)];
    this.lines.push([keyword, ...head, type, value, ...hints]);
  }

  /** Return the bytes of all that was written and, last, what it was written for. */
  finish(value) {
    this.lines.push(['proof', value]);
    return Buffer.from(this.lines.map((line) => JSON.stringify(line) + '\n').join(''));
  }

  /** Write a node after its parts; return its reference. Terms are too deep to recurse. */
  reference(kind, root) {
    const written = this.written[kind];
    const pending = [root];
    while (pending.length) {
      const node = pending.at(-1);
      const { op, fields } = written.has(node) ? { fields: [] } : this.parts(kind, node);
      const inner = fields.filter((field) => field.kind === kind).map(({ object }) => object);
      const missing = inner.filter((part) => !written.has(part));
      pending.push(...missing);
      if (missing.length) continue;
      if (!written.has(node)) written.set(node, this.add(kind, op, fields));
      pending.pop();
    }
    return written.get(root);
  }

  add(kind, op, fields) {
    const items = fields.map((field) => this.item(field.kind, field.object));
    if (op === 'zero') return 0;
    if (op === 'mdata') return items[0]; // it stands for what it is about
    if (op === 'const' || op === 'proj') this.uses.add(fields[0].object);
    if (this.lines.push([op, ...items]) > MAX_LINES) {
      throw new Refusal('memory', ['the proof is too large']);
    }
    return this.next[kind]++;
  }

  /** Return the first word of a node's line, and its fields with their kinds. */
  parts(kind, node) {
    const { rt } = this;
    let op = this.op(kind, node);
    let skipped = BINDERS.has(op) ? 1 : 0;
    if (op === 'zero') return { op, fields: [] };
    if (op === 'mdata') return { op, fields: [{ kind, object: rt.field(node, 1) }] };
    if (op === 'lit') {
      node = rt.field(node, 0);
      op = rt.constructorOf(node) === 1 ? 'text' : 'nat';
    }
    if (!Object.hasOwn(LINES[kind], op)) throw new Error('a term with a hole');
    const kinds = LINES[kind][op];
    return { op, fields: kinds.map((kind) => ({ kind, object: rt.field(node, skipped++) })) };
  }

  op(kind, node) {
    const constructor = this.rt.constructorOf(node);
    if (kind === 'name') return constructor === 1 ? 'str' : 'num';
    return (kind === 'level' ? LEVELS : EXPRESSIONS)[constructor];
  }

  /** Return an item of a line. */
  item(kind, object) {
    const { rt } = this;
    switch (kind) {
      case 'names':
      case 'levels':
        return rt.readList(object).map((part) => this.item(kind.slice(0, -1), part));
      case 'text':
        return codePoints(rt.readString(object));
      case 'digits':
        return String(rt.readNatural(object));
      case 'number':
      case 'bvar':
        return rt.readNatural(object);
      case 'hint':
        return rt.isScalar(object) ? HINTS[object >>> 1] : rt.field(object, 0);
      default:
        return this.reference(kind, object);
    }
  }
}

/**
 * Export the `type` or the `value` (`part`) of a theorem that was elaborated in `environment`,
 * after the constants that the theorem rests on and the header lacks, in order of use.
 */
function exported(lean, environment, theorem, part) {
  const { rt } = lean;
  const exporter = new Exporter(rt);
  const seen = new Set();
  const open = (name) => {
    seen.add(keyOf(rt.readName(name)));
    const constant = lean.findConstant(environment, name);
    const kind = constant === null ? 'missing constant' : lean.kindOfConstant(constant);
    if (kind in KEYWORDS) return exporter.open(constant, kind);
    throw new Refusal('forbidden', [`the ${kind} ${rt.readName(name).join('.')}`]);
  };
  const visit = (name) => {
    if (seen.has(keyOf(rt.readName(name)))) return;
    if (lean.findConstant(lean.environment, name) !== null) return; // the header's
    const constant = open(name);
    constant.uses.forEach(visit);
    exporter.declare(constant);
  };
  const root = open(rt.parseName(theorem));
  root.uses.forEach(visit);
  return exporter.finish(root[part]);
}

module.exports = { HINTS, LINES, MAX_LINES, exported };

'use strict';
/**
 * Writes Lean's terms as text, the export. The author writes it and the judge reads it (replay.js).
 *
 * Each line is a JSON array: a word, then the items that `LINES` lists for the word. An item may
 * refer to an earlier line: it is then the index of that line among the lines of the same kind. The
 * indices of names and universe levels begin with 1 (0 is the anonymous name, and the level zero),
 * those of expressions with 0. Texts are lists of code points, so an export has only ASCII
 * characters.
 *
 * The export leaves out what the kernel ignores: metadata, names of bound variables, and whether
 * they are implicit. A term that occurs several times is written once. Export.lean does the same
 * for a native Lean.
 */
const { box } = require('./runtime.js');
const { Refusal, keyOf } = require('./refusal.js');

/** By the kind of a line and its first word: the kinds of its other items. */
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
    proj: ['name', 'number', 'expression'], // the structure, the index of its field, the value
  },
  // Name, universe parameters, type, value, and for a definition its reducibility hint.
  constant: {
    def: ['name', 'names', 'expression', 'expression', 'hint'],
    theorem: ['name', 'names', 'expression', 'expression'],
    opaque: ['name', 'names', 'expression', 'expression'],
  },
  end: { proof: ['expression'] }, // the last line: the theorem's value
};
const HINTS = ['opaque', 'abbrev']; // a hint may also be a number, the definition's height
const MAX_LINES = 2000000; // of an export; usual proofs have some thousand

// The constructors of Lean's types Level and Expr, in their order.
const LEVELS = ['zero', 'succ', 'max', 'imax', 'param', 'mvar'];
const EXPRESSIONS = [
  'bvar', 'fvar', 'mvar', 'sort', 'const', 'app', 'lambda', 'forall', 'let', 'lit', 'mdata', 'proj',
];
const BINDERS = new Set(['lambda', 'forall', 'let']); // the first field is the variable's name
// The first word of a constant's line, by the kind of constant. Other kinds cannot be exported.
const KEYWORDS = { definition: 'def', theorem: 'theorem', opaque: 'opaque' };

const codePoints = (text) => Array.from(text, (character) => character.codePointAt(0));

/**
 * Writes an export from the memory of `runtime`. A proof may have changed that memory, so the
 * export may be anything, and its reader must be strict.
 */
class Exporter {
  constructor(runtime) {
    this.rt = runtime;
    this.lines = [];
    // By kind: the indices of written lines by the object's address, and the next index.
    this.written = { name: new Map([[box(0), 0]]), level: new Map(), expression: new Map() };
    this.next = { name: 1, level: 1, expression: 0 };
    this.uses = new Set(); // addresses of names of constants that occur in expressions
  }

  /**
   * Write the type and value of a ConstantInfo that is a definition, a theorem or an opaque
   * constant. Return what `writeConstant` needs, and `uses`: the addresses of the names of the
   * constants that type and value mention.
   */
  writeParts(constant, kind) {
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

  /** Write the line of a constant whose parts `writeParts` has written. */
  writeConstant({ keyword, name, params, type, value, hints }) {
    const head = [this.item('name', name), this.item('names', params)];
    this.lines.push([keyword, ...head, type, value, ...hints]);
  }

  /** Return the bytes of the export, whose last line refers to the expression `value`. */
  finish(value) {
    this.lines.push(['proof', value]);
    return Buffer.from(this.lines.map((line) => JSON.stringify(line) + '\n').join(''));
  }

  /**
   * Return the index of a node (a name, level or expression). If it has not been written, write its
   * parts, then the node. This is a loop, because terms are too deep for recursion.
   */
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

  /** Write the line of a node whose parts are written, and return its index. */
  add(kind, op, fields) {
    const items = fields.map((field) => this.item(field.kind, field.object));
    if (op === 'zero') return 0;
    if (op === 'mdata') return items[0]; // metadata is left out: the index of the inner term
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
    let index = BINDERS.has(op) ? 1 : 0; // of the first field that is written
    if (op === 'zero') return { op, fields: [] };
    if (op === 'mdata') return { op, fields: [{ kind, object: rt.field(node, 1) }] };
    if (op === 'lit') {
      node = rt.field(node, 0);
      op = rt.constructorOf(node) === 1 ? 'text' : 'nat';
    }
    // Otherwise it is a metavariable or a free variable, which a finished proof does not have.
    if (!Object.hasOwn(LINES[kind], op)) throw new Error(`a term with a ${op}`);
    const kinds = LINES[kind][op];
    return { op, fields: kinds.map((kind) => ({ kind, object: rt.field(node, index++) })) };
  }

  /** Return the name of the constructor of a node. */
  op(kind, node) {
    const constructor = this.rt.constructorOf(node);
    if (kind === 'name') return constructor === 1 ? 'str' : 'num';
    return (kind === 'level' ? LEVELS : EXPRESSIONS)[constructor];
  }

  /** Return an object as an item of a line. */
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
 * Export a theorem in `environment`. The last line refers to its type or its value, as `part`
 * ('type' or 'value') says. The constants that the theorem depends on and that the header does not
 * have come before it, each after the constants that it uses.
 */
function exportTheorem(lean, environment, theorem, part) {
  const { rt } = lean;
  const exporter = new Exporter(rt);
  const seen = new Set();
  const writePartsOf = (name) => {
    seen.add(keyOf(rt.readName(name)));
    const constant = lean.findConstant(environment, name);
    const kind = constant === null ? 'missing constant' : lean.kindOfConstant(constant);
    if (kind in KEYWORDS) return exporter.writeParts(constant, kind);
    throw new Refusal('forbidden', [`the ${kind} ${rt.readName(name).join('.')}`]);
  };
  const writeDependency = (name) => {
    if (seen.has(keyOf(rt.readName(name)))) return;
    if (lean.findConstant(lean.environment, name) !== null) return; // the header has it
    const constant = writePartsOf(name);
    constant.uses.forEach(writeDependency);
    exporter.writeConstant(constant);
  };
  const root = writePartsOf(rt.parseName(theorem));
  root.uses.forEach(writeDependency);
  return exporter.finish(root[part]);
}

module.exports = { HINTS, LINES, MAX_LINES, exportTheorem };

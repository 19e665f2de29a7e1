'use strict';
/**
 * Lean's terms as text: what the author writes and the judge reads (replay.js).
 *
 * Each line is a JSON array. A reference is the index of an earlier line of the same kind: of names
 * and levels from 1 (0 is the anonymous name, and level zero), of expressions from 0. Texts are
 * lists of code points, so that no byte has two readings.
 *
 *   names        ["str", prefix, [code points]]  ["num", prefix, n]
 *   levels       ["succ", l]  ["max", a, b]  ["imax", a, b]  ["param", name]
 *   expressions  ["bvar", i]  ["sort", l]  ["const", name, [levels]]  ["app", f, x]
 *                ["lambda", type, body]  ["forall", type, body]  ["let", type, value, body]
 *                ["nat", "digits"]  ["text", [code points]]  ["proj", name, index, e]
 *   constants    ["def", name, [params], type, value, "opaque" | "abbrev" | height]
 *                ["theorem", name, [params], type, value]  ["opaque", name, [params], type, value]
 *   at the end   ["proof", value]
 *
 * What the kernel does not look at is left out: metadata, names of bound variables, how they are
 * bound. What is shared in Lean is shared here. Checker.lean writes and reads the same for a native
 * Lean.
 */
const { box } = require('./runtime.js');
const { Refusal, keyOf } = require('./verdicts.js');

const LEVELS = ['zero', 'succ', 'max', 'imax', 'param'];
const EXPRESSIONS = [
  'bvar', 'fvar', 'mvar', 'sort', 'const', 'app', 'lambda', 'forall', 'let', 'lit', 'mdata', 'proj',
];
const HINTS = ['opaque', 'abbrev'];
// Which fields of a constructor are of its own type.
const LEVEL_PARTS = { succ: [0], max: [0, 1], imax: [0, 1] };
const PARTS = {
  app: [0, 1], lambda: [1, 2], forall: [1, 2], let: [1, 2, 3], mdata: [1], proj: [2],
};
const KEYWORDS = { definition: 'def', theorem: 'theorem', opaque: 'opaque' };

const ANONYMOUS = box(0);
const MAX_LINES = 2000000; // a proof has some thousand

const codePoints = (text) => Array.from(text, (character) => character.codePointAt(0));

/** Writes what lies in the memory of `runtime`, whatever it is: the reader must be strict. */
class Exporter {
  constructor(runtime) {
    this.rt = runtime;
    this.lines = [];
    // References by address.
    this.names = new Map([[ANONYMOUS, 0]]);
    this.levels = new Map();
    this.expressions = new Map();
    this.count = { names: 1, levels: 1, expressions: 0 };
    this.uses = new Set();
  }

  /**
   * Write the type and value of a ConstantInfo that is a definition, a theorem or an opaque
   * constant. `uses` are the addresses of the names of the constants that they mention.
   */
  open(constant, kind) {
    const { rt } = this;
    const found = rt.field(constant, 0);
    const head = rt.field(found, 0);
    this.uses = new Set();
    return {
      keyword: KEYWORDS[kind],
      name: rt.field(head, 0),
      params: rt.readList(rt.field(head, 1)),
      type: this.expression(rt.field(head, 2)),
      value: this.expression(rt.field(found, 1)),
      hints: kind === 'definition' ? [this.hints(rt.field(found, 2))] : [],
      uses: this.uses,
    };
  }

  /** Write a constant that was opened. */
  declare({ keyword, name, params, type, value, hints }) {
    const written = [this.name(name), params.map((param) => this.name(param))];
    this.lines.push([keyword, ...written, type, value, ...hints]);
  }

  /** All that was written and, last, what it was written for: the bytes. */
  finish(value) {
    this.lines.push(['proof', value]);
    return Buffer.from(this.lines.map((line) => JSON.stringify(line) + '\n').join(''));
  }

  hints(object) {
    return this.rt.isScalar(object) ? HINTS[object >>> 1] : this.rt.field(object, 0);
  }

  /** Write each node of a graph once, from its leaves to `root`: terms are too deep to recurse. */
  written(root, table, partsOf, write) {
    const pending = [root];
    while (pending.length) {
      const node = pending.at(-1);
      const parts = table.has(node) ? [] : partsOf(node);
      const missing = parts.filter((part) => !table.has(part));
      pending.push(...missing);
      if (missing.length) continue;
      if (!table.has(node)) table.set(node, write(node, parts.map((part) => table.get(part))));
      pending.pop();
    }
    return table.get(root);
  }

  add(kind, ...line) {
    if (this.lines.push(line) > MAX_LINES) throw new Refusal('memory', ['the proof is too large']);
    return this.count[kind]++;
  }

  name(root) {
    const { rt } = this;
    const prefixOf = (object) => [rt.field(object, 0)];
    return this.written(root, this.names, prefixOf, (object, [prefix]) => {
      const last = rt.lastComponent(object);
      return typeof last === 'string'
        ? this.add('names', 'str', prefix, codePoints(last))
        : this.add('names', 'num', prefix, last);
    });
  }

  level(root) {
    const { rt } = this;
    const opOf = (object) => LEVELS[rt.constructorOf(object)];
    const partsOf = (object) => (LEVEL_PARTS[opOf(object)] ?? []).map((i) => rt.field(object, i));
    return this.written(root, this.levels, partsOf, (object, parts) => {
      const op = opOf(object);
      if (op === 'zero') return 0;
      if (op === 'param') return this.add('levels', op, this.name(rt.field(object, 0)));
      if (op === undefined) throw new Error('a level with a hole');
      return this.add('levels', op, ...parts);
    });
  }

  expression(root) {
    const { rt } = this;
    const opOf = (object) => EXPRESSIONS[rt.constructorOf(object)];
    const partsOf = (object) => (PARTS[opOf(object)] ?? []).map((i) => rt.field(object, i));
    return this.written(root, this.expressions, partsOf, (object, parts) => {
      const line = this.node(opOf(object), object, parts);
      return line === null ? parts[0] : this.add('expressions', ...line);
    });
  }

  /** The line of an expression; null for metadata, which stands for what it is about. */
  node(op, object, parts) {
    const { rt } = this;
    const first = rt.field(object, 0);
    switch (op) {
      case 'mdata':
        return null;
      case 'app':
      case 'lambda':
      case 'forall':
      case 'let':
        return [op, ...parts];
      case 'bvar':
        return [op, rt.readNatural(first)];
      case 'sort':
        return [op, this.level(first)];
      case 'const': {
        this.uses.add(first);
        const levels = rt.readList(rt.field(object, 1));
        return [op, this.name(first), levels.map((level) => this.level(level))];
      }
      case 'proj':
        this.uses.add(first);
        return [op, this.name(first), rt.readNatural(rt.field(object, 1)), ...parts];
      case 'lit': {
        const value = rt.field(first, 0);
        return rt.constructorOf(first) === 1
          ? ['text', codePoints(rt.readString(value))]
          : ['nat', String(rt.readNatural(value))];
      }
      default:
        throw new Error('a term with a hole');
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

module.exports = { Exporter, exported };

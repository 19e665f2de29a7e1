'use strict';
/**
 * Reads an export (export.js) and makes its terms by Lean's own constructors.
 *
 * The text is an adversary's. Every line has exactly one reading or is refused: no reference but to
 * an earlier line, no text but of Unicode's scalar values, no number in two spellings. So the names
 * that are compared here are the names that Lean gets.
 */
const { box } = require('./runtime.js');
const { Refusal } = require('./verdicts.js');

const [DEFAULT_BINDER, DEPENDENT, SAFE, NOT_UNSAFE] = [0, 0, 1, 0];
const HINTS = ['opaque', 'abbrev'];
const NONE = box(0); // also the anonymous name and the empty list
// Beyond these Lean's constructors give up, and what they return says something else.
const LIMIT = { number: 2 ** 31 - 1, bvar: 2 ** 20 - 2, depth: 1000 };
const MAX_LINES = 2000000; // as an author writes at most
const SURROGATES = [0xd800, 0xdfff];

// The form of each line.
const LINES = new Map(
  Object.entries({
    str: ['name', 'text'],
    num: ['name', 'number'],
    succ: ['level'],
    max: ['level', 'level'],
    imax: ['level', 'level'],
    param: ['name'],
    bvar: ['bvar'],
    sort: ['level'],
    const: ['name', 'levels'],
    app: ['expression', 'expression'],
    lambda: ['expression', 'expression'],
    forall: ['expression', 'expression'],
    let: ['expression', 'expression', 'expression'],
    nat: ['digits'],
    text: ['text'],
    proj: ['name', 'number', 'expression'],
    def: ['name', 'names', 'expression', 'expression', 'hint'],
    theorem: ['name', 'names', 'expression', 'expression'],
    opaque: ['name', 'names', 'expression', 'expression'],
    proof: ['expression'],
  }),
);

const isNumber = (value, limit) => Number.isInteger(value) && value >= 0 && value <= limit;
const isCharacter = (point) =>
  isNumber(point, 0x10ffff) && !(point >= SURROGATES[0] && point <= SURROGATES[1]);
const isText = (points) => Array.isArray(points) && points.every(isCharacter);
const textOf = (points) => points.map((point) => String.fromCodePoint(point)).join('');

/** Reads one export into the memory of `runtime`. */
class Replayer {
  constructor(runtime) {
    this.rt = runtime;
    this.x = runtime.x;
    // By reference: objects, the prefix and last component of names, how deep levels are.
    this.names = [NONE];
    this.components = [null];
    this.levels = [this.x.lean_level_mk_zero(NONE)];
    this.depths = [0];
    this.expressions = [];
    this.used = new Set(); // references of the names of constants that expressions mention
    this.binder = runtime.makeName(['x']); // of every bound variable
  }

  /**
   * Read `bytes`. Each constant goes to `declare(components, declaration)`, in order.
   * Return the expression of the last line. Throw a Refusal with the line that is not well formed.
   */
  read(bytes, declare) {
    const lines = bytes.toString('latin1').split('\n'); // other characters are in no right line
    if (lines.pop() !== '' || lines.length > MAX_LINES) throw refusal(lines.length + 1);
    for (const [index, line] of lines.entries()) {
      const [op, ...items] = this.parsed(line, index + 1);
      if ((op === 'proof') !== (index === lines.length - 1)) throw refusal(index + 1);
      this.add(op, items, declare);
    }
    if (!lines.length) throw refusal(1);
    return this.expressions[this.proof];
  }

  /** The names of constants that were mentioned, as components. */
  mentioned() {
    return [...this.used].map((reference) => this.nameOf(reference));
  }

  nameOf(reference) {
    const found = [];
    for (; reference !== 0; reference = this.components[reference].prefix) {
      found.push(this.components[reference].last);
    }
    return found.reverse();
  }

  parsed(line, number) {
    let read;
    try {
      read = JSON.parse(line);
    } catch {
      throw refusal(number);
    }
    const [op, ...items] = Array.isArray(read) ? read : [];
    const form = LINES.get(op);
    const fits = form?.length === items.length && form.every((kind, i) => this.is(kind, items[i]));
    if (!fits) throw refusal(number);
    return read;
  }

  is(kind, item) {
    switch (kind) {
      case 'name':
      case 'level':
      case 'expression':
        return isNumber(item, this[kind + 's'].length - 1);
      case 'names':
      case 'levels':
        return Array.isArray(item) && item.every((one) => this.is(kind.slice(0, -1), one));
      case 'text':
        return isText(item);
      case 'digits':
        return typeof item === 'string' && /^(?:0|[1-9][0-9]*)$/.test(item);
      case 'hint':
        return HINTS.includes(item) || isNumber(item, LIMIT.number);
      default:
        return isNumber(item, LIMIT[kind]);
    }
  }

  add(op, items, declare) {
    const [first, second] = items;
    switch (op) {
      case 'str':
      case 'num':
        return this.addName(first, op === 'str' ? textOf(second) : second);
      case 'succ':
      case 'max':
      case 'imax':
      case 'param':
        return this.addLevel(op, items);
      case 'def':
      case 'theorem':
      case 'opaque':
        return declare(this.nameOf(first), this.declaration(op, ...items));
      case 'proof':
        this.proof = first;
        return undefined;
      default:
        if (op === 'const' || op === 'proj') this.used.add(first);
        return this.expressions.push(this.made(op, items));
    }
  }

  addName(prefix, last) {
    const { rt, x } = this;
    const above = this.get('names', prefix);
    const isString = typeof last === 'string';
    this.names.push(
      isString
        ? x.lean_name_mk_string(above, rt.makeString(last))
        : x.lean_name_mk_numeral(above, box(last)),
    );
    this.components.push({ prefix, last });
  }

  addLevel(op, items) {
    const isParam = op === 'param';
    const depth = isParam ? 0 : 1 + Math.max(...items.map((item) => this.depths[item]));
    if (depth > LIMIT.depth) throw new Refusal('forbidden', ['a universe level is too deep']);
    const parts = items.map((item) => this.get(isParam ? 'names' : 'levels', item));
    this.levels.push(this.x[`lean_level_mk_${op}`](...parts));
    this.depths.push(depth);
  }

  /** A reference's object, for a callee that consumes one of its counts. */
  get(kind, reference) {
    return this.rt.share(this[kind][reference]);
  }

  list(kind, references) {
    return this.rt.makeList(references.map((reference) => this.get(kind, reference)));
  }

  made(op, items) {
    const { rt, x } = this;
    const part = (index) => this.get('expressions', items[index]);
    switch (op) {
      case 'bvar':
        return x.lean_expr_mk_bvar(box(items[0]));
      case 'sort':
        return x.lean_expr_mk_sort(this.get('levels', items[0]));
      case 'const':
        return x.lean_expr_mk_const(this.get('names', items[0]), this.list('levels', items[1]));
      case 'app':
        return x.lean_expr_mk_app(part(0), part(1));
      case 'lambda':
      case 'forall': {
        const make = x[`lean_expr_mk_${op}`];
        return make(rt.share(this.binder), part(0), part(1), DEFAULT_BINDER);
      }
      case 'let':
        return x.lean_expr_mk_let(rt.share(this.binder), part(0), part(1), part(2), DEPENDENT);
      case 'proj':
        return x.lean_expr_mk_proj(this.get('names', items[0]), box(items[1]), part(2));
      case 'nat':
        return x.lean_expr_mk_lit(rt.makeObject(0, [rt.makeNatural(items[0])]));
      default:
        return x.lean_expr_mk_lit(rt.makeObject(1, [rt.makeString(textOf(items[0]))]));
    }
  }

  declaration(op, name, params, type, value, hint) {
    const head = [
      this.get('names', name), this.list('names', params),
      this.get('expressions', type), this.get('expressions', value),
    ];
    return declarationOf(this.rt, op, head, hint);
  }
}

/**
 * A Declaration, for the kernel. Whatever it was, it is made as a safe one. `head` are its name,
 * the list of its universe parameters, type and value, which it then owns.
 */
function declarationOf(rt, op, head, hint) {
  const { x } = rt;
  if (op === 'theorem') return rt.makeObject(2, [x.lean_mk_theorem_val(...head, NONE)]);
  if (op === 'opaque') return rt.makeObject(3, [x.lean_mk_opaque_val(...head, NOT_UNSAFE, NONE)]);
  const hints = HINTS.includes(hint)
    ? box(HINTS.indexOf(hint))
    : x.lean_mk_reducibility_hints_regular(hint);
  return rt.makeObject(1, [x.lean_mk_definition_val(...head, hints, SAFE, NONE)]);
}

const refusal = (line) => new Refusal('forbidden', [`line ${line} of the export has another form`]);

module.exports = { Replayer, declarationOf };

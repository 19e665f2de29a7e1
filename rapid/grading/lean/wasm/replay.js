'use strict';
/**
 * Reads an export (export.js) and builds its terms with Lean's own constructors.
 *
 * An adversary may have written the export. So the reader is strict: a reference must be to an
 * earlier line, a text must have only Unicode scalar values, numbers must be within their limits,
 * and the digits of a `nat` have no leading zero. Every other line is refused. Then the names that
 * the judge compares in JavaScript are exactly the names that Lean gets.
 */
const { HINTS, LINES, MAX_LINES } = require('./export.js');
const { box } = require('./runtime.js');
const { Refusal } = require('./refusal.js');

// Arguments of Lean's constructors: kind of binder, dependent `let`, safe definition, not unsafe.
const [DEFAULT_BINDER, DEPENDENT, SAFE, NOT_UNSAFE] = [0, 0, 1, 0];
const NONE = box(0); // also the anonymous name and the empty list
// Beyond these limits Lean's constructors do not fail, but return a different term.
const LIMIT = { number: 2 ** 31 - 1, bvar: 2 ** 20 - 2, depth: 1000 };
const SURROGATES = [0xd800, 0xdfff];

/** By the first word of a line: its kind, and the kinds of its other items. */
const FORMS = new Map(
  Object.entries(LINES).flatMap(([kind, lines]) =>
    Object.entries(lines).map(([op, items]) => [op, { kind, items }]),
  ),
);

const isNumber = (value, limit) => Number.isInteger(value) && value >= 0 && value <= limit;
const isCharacter = (point) =>
  isNumber(point, 0x10ffff) && !(point >= SURROGATES[0] && point <= SURROGATES[1]);
const textOf = (points) => points.map((point) => String.fromCodePoint(point)).join('');

/** Reads one export into the memory of `runtime`. */
class Replayer {
  constructor(runtime) {
    this.rt = runtime;
    this.x = runtime.x;
    // Three lists by index: the objects of each kind; the prefix and the last component of each
    // name; the depth of each level.
    this.objects = { name: [NONE], level: [this.x.lean_level_mk_zero(NONE)], expression: [] };
    this.components = [null];
    this.depths = [0];
    this.used = new Set(); // indices of names of constants that occur in expressions
    this.binder = runtime.makeName(['x']); // the name of all bound variables
  }

  /**
   * Read an export. Call `declare(components, declaration)` for each constant, in order, with the
   * components of its name. Return the expression of the last line. Throw a Refusal with the number
   * of the first line that is not well formed.
   */
  read(bytes, declare) {
    const lines = bytes.toString('latin1').split('\n'); // a valid line has only ASCII
    if (lines.pop() !== '' || lines.length > MAX_LINES) throw refusal(lines.length + 1);
    for (const [index, line] of lines.entries()) {
      const [op, ...items] = this.parseLine(line, index + 1);
      if ((op === 'proof') !== (index === lines.length - 1)) throw refusal(index + 1);
      this.add(op, items, declare);
    }
    if (!lines.length) throw refusal(1);
    return this.proof;
  }

  /** Return the names of the constants that occur in expressions, as lists of components. */
  mentioned() {
    return [...this.used].map((reference) => this.nameOf(reference));
  }

  /** Return the components of a name. */
  nameOf(reference) {
    const components = [];
    for (; reference !== 0; reference = this.components[reference].prefix) {
      components.push(this.components[reference].last);
    }
    return components.reverse();
  }

  /** Return the array in a line. Throw a Refusal if it does not have the form of `LINES`. */
  parseLine(line, number) {
    let read;
    try {
      read = JSON.parse(line);
    } catch {
      throw refusal(number);
    }
    const [op, ...items] = Array.isArray(read) ? read : [];
    const form = FORMS.get(op)?.items;
    const fits = form?.length === items.length;
    if (!fits || !form.every((kind, i) => this.isOfKind(kind, items[i]))) throw refusal(number);
    return read;
  }

  /** Return whether an item is of this kind. */
  isOfKind(kind, item) {
    switch (kind) {
      case 'name':
      case 'level':
      case 'expression':
        return isNumber(item, this.objects[kind].length - 1);
      case 'names':
      case 'levels':
        return Array.isArray(item) && item.every((part) => this.isOfKind(kind.slice(0, -1), part));
      case 'text':
        return Array.isArray(item) && item.every(isCharacter);
      case 'digits':
        return typeof item === 'string' && /^(?:0|[1-9][0-9]*)$/.test(item);
      case 'hint':
        return HINTS.includes(item) || isNumber(item, LIMIT.number);
      default:
        return isNumber(item, LIMIT[kind]);
    }
  }

  /** Return an item as an argument of Lean's constructors, which consume one reference to it. */
  toArgument(kind, item) {
    const { rt } = this;
    switch (kind) {
      case 'name':
      case 'level':
      case 'expression':
        return rt.share(this.objects[kind][item]);
      case 'names':
      case 'levels':
        return rt.makeList(item.map((part) => this.toArgument(kind.slice(0, -1), part)));
      case 'text':
        return rt.makeString(textOf(item));
      case 'digits':
        return rt.makeNatural(item);
      case 'hint':
        return item;
      default:
        return box(item);
    }
  }

  /** Build the object of a line and add it to the objects of its kind. */
  add(op, items, declare) {
    const form = FORMS.get(op);
    const parts = form.items.map((kind, index) => this.toArgument(kind, items[index]));
    switch (form.kind) {
      case 'constant':
        return declare(this.nameOf(items[0]), declarationOf(this.rt, op, ...parts));
      case 'end':
        this.proof = parts[0];
        return undefined;
      case 'name':
        this.components.push({
          prefix: items[0],
          last: op === 'str' ? textOf(items[1]) : items[1],
        });
        break;
      case 'level':
        this.depths.push(this.depth(op, items));
        break;
      default:
        if (op === 'const' || op === 'proj') this.used.add(items[0]);
    }
    return this.objects[form.kind].push(this.buildObject(op, parts));
  }

  /** Return the depth of a level. Throw a Refusal if it is above the limit. */
  depth(op, items) {
    const depth = op === 'param' ? 0 : 1 + Math.max(...items.map((item) => this.depths[item]));
    if (depth > LIMIT.depth) throw new Refusal('forbidden', ['a universe level is too deep']);
    return depth;
  }

  /** Build a name, a level or an expression with Lean's constructor. */
  buildObject(op, parts) {
    const { rt, x } = this;
    switch (op) {
      case 'str':
        return x.lean_name_mk_string(...parts);
      case 'num':
        return x.lean_name_mk_numeral(...parts);
      case 'succ':
      case 'max':
      case 'imax':
      case 'param':
        return x[`lean_level_mk_${op}`](...parts);
      case 'lambda':
      case 'forall':
        return x[`lean_expr_mk_${op}`](rt.share(this.binder), ...parts, DEFAULT_BINDER);
      case 'let':
        return x.lean_expr_mk_let(rt.share(this.binder), ...parts, DEPENDENT);
      case 'nat':
      case 'text':
        return x.lean_expr_mk_lit(rt.makeObject(op === 'nat' ? 0 : 1, parts));
      default:
        return x[`lean_expr_mk_${op}`](...parts);
    }
  }
}

/**
 * Build a Declaration for the kernel. It is marked as safe, whatever it was for the author, so that
 * the kernel checks everything. The call consumes a reference to each argument: the name, the list
 * of universe parameters, the type, the value and the hint.
 */
function declarationOf(rt, op, name, params, type, value, hint) {
  const { x } = rt;
  const head = [name, params, type, value];
  // Constructors of Declaration: 1 is a definition, 2 a theorem, 3 an opaque constant.
  if (op === 'theorem') return rt.makeObject(2, [x.lean_mk_theorem_val(...head, NONE)]);
  if (op === 'opaque') return rt.makeObject(3, [x.lean_mk_opaque_val(...head, NOT_UNSAFE, NONE)]);
  const hints = HINTS.includes(hint)
    ? box(HINTS.indexOf(hint))
    : x.lean_mk_reducibility_hints_regular(hint);
  return rt.makeObject(1, [x.lean_mk_definition_val(...head, hints, SAFE, NONE)]);
}

const refusal = (line) => new Refusal('forbidden', [`line ${line} of the export has another form`]);

module.exports = { Replayer, declarationOf };

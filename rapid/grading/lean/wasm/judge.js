'use strict';
/**
 * The judge decides whether an export (export.js) is a proof of a statement.
 *
 * The text of a proof never enters this process: it elaborates only the benchmark's statement. From
 * the author it gets the export, which it reads as data (replay.js).
 *
 * 1. The judge elaborates the statement with `sorry`, to get the theorem's name, universe
 *    parameters and type.
 * 2. The kernel checks each exported constant, and then the theorem, in the environment after the
 *    header (the code before the statement, such as imports). The theorem's name, parameters and
 *    type are those of step 1; only its value comes from the export.
 * 3. The judge looks up each constant of the header that the exported terms mention. An axiom must
 *    be one of Lean's three standard axioms, and constants by which the kernel would run compiled
 *    code are refused.
 *
 * So nothing depends on the author's honesty: whatever passes is a proof.
 */
const { exportTheorem } = require('./export.js');
const { HEARTBEATS, isError } = require('./frontend.js');
const { Replayer, declarationOf } = require('./replay.js');
const { box } = require('./runtime.js');
const { Refusal, keyOf } = require('./refusal.js');

const AXIOMS = new Set([['propext'], ['Classical', 'choice'], ['Quot', 'sound']].map(keyOf));
// Constants by which the kernel would run compiled code.
const COMPILED = new Set([['Lean', 'reduceBool'], ['Lean', 'reduceNat']].map(keyOf));
// The kernel has built-in rules for these constants, whatever their definitions are. If the header
// lacks one, an export must not declare it: its definition could contradict the built-in rules.
const BUILT_IN = new Set(
  [
    'Nat', 'Nat.zero', 'Nat.succ', 'Nat.add', 'Nat.sub', 'Nat.mul', 'Nat.div', 'Nat.mod', 'Nat.gcd',
    'Nat.pow', 'Nat.log2', 'Nat.beq', 'Nat.ble', 'Nat.land', 'Nat.lor', 'Nat.xor', 'Nat.shiftLeft',
    'Nat.shiftRight', 'Bool', 'Bool.true', 'Bool.false', 'Char', 'Char.ofNat', 'List', 'List.nil',
    'List.cons', 'String', 'String.mk', 'String.ofList', 'Eq', 'Eq.refl', 'Quot', 'Quot.mk',
    'Quot.lift', 'Quot.ind', 'Lean.reduceBool', 'Lean.reduceNat', 'eagerReduce',
  ].map((name) => keyOf(name.split('.'))),
);
const NO_CANCELLING = box(0);

class Judge {
  constructor(frontend) {
    this.lean = frontend;
    this.goals = new Map(); // by name and statement, since a problem is graded many times
  }

  /** Return `{why}`: `passed`, or `stated` if there is no export. May throw a Refusal. */
  answer({ name, statement }, exportBytes) {
    const goal = this.getGoal(name, statement);
    if (exportBytes === undefined) return { why: 'stated' };
    this.check(goal, exportBytes);
    return { why: 'passed' };
  }

  /**
   * Return the result of step 1, `{name, params, type}`. The type is an export, with the constants
   * that the statement adds: objects in Lean's memory would be lost when the memory is put back.
   */
  getGoal(name, statement) {
    const key = keyOf([name, statement]);
    if (!this.goals.has(key)) this.goals.set(key, this.elaborate(name, statement));
    return this.goals.get(key);
  }

  /** Take step 1. Throw a Refusal (`bad statement`) if the statement is not accepted. */
  elaborate(name, statement) {
    const { lean } = this;
    const command = lean.parseCommand(`${statement} sorry`);
    const { environment, messages } = lean.elaborate(command);
    const errors = [...command.messages, ...messages].filter(isError);
    if (errors.length) throw badStatement(...errors.map((error) => error.text()));
    if (!command.isWhole) {
      throw badStatement('more than one command: those before it belong in its header');
    }
    const theorem = lean.rt.parseName(name);
    const constant = lean.findConstant(environment, theorem);
    const kind = constant === null ? 'missing' : lean.kindOfConstant(constant);
    if (kind !== 'theorem') throw badStatement(`it declares no theorem of this name (${kind})`);
    return {
      name: lean.rt.readName(theorem),
      params: lean.parametersOf(constant).map((param) => lean.rt.readName(param)),
      type: exportTheorem(lean, environment, name, 'type'),
    };
  }

  /** Take steps 2 and 3. Throw a Refusal if the export is not a proof of the goal. */
  check(goal, exportBytes) {
    const { rt, x } = this.lean;
    const stated = this.read(goal.type);
    const proof = this.read(exportBytes);
    // For constants that the statement itself adds, the judge uses its own definitions and ignores
    // those in the export.
    const added = proof.constants.filter(({ key }) => !stated.keys.has(key));
    for (const { key, name } of added) {
      if (BUILT_IN.has(key)) throw new Refusal('forbidden', [`declares ${name.join('.')}`]);
    }
    for (const name of proof.mentioned) {
      if (!stated.keys.has(keyOf(name)) && !proof.keys.has(keyOf(name))) this.checkAllowed(name);
    }
    // Heartbeats count the kernel's work. Otherwise they would add up over all checks.
    x._ZN4lean15reset_heartbeatEv();
    let kernel = this.lean.kernelEnvironment();
    for (const { name, declaration } of [...stated.constants, ...added]) {
      kernel = this.addConstant(kernel, name, declaration);
    }
    const params = rt.makeList(goal.params.map((name) => rt.makeName(name)));
    const head = [rt.makeName(goal.name), params, stated.root, proof.root];
    this.addConstant(kernel, goal.name, declarationOf(rt, 'theorem', ...head));
  }

  /** Read an export: its constants, their keys, the last expression, and all mentioned names. */
  read(bytes) {
    const constants = [];
    const replayer = new Replayer(this.lean.rt);
    const root = replayer.read(bytes, (name, declaration) => {
      constants.push({ key: keyOf(name), name, declaration });
    });
    const keys = new Set(constants.map(({ key }) => key));
    return { constants, keys, root, mentioned: replayer.mentioned() };
  }

  /** Return the environment with a constant added. Throw a Refusal if the kernel refuses it. */
  addConstant(kernel, name, declaration) {
    const { rt, x } = this.lean;
    const result = x.lean_add_decl(kernel, HEARTBEATS, rt.keep(declaration), NO_CANCELLING);
    if (rt.tag(result) === 0) { // an Except: 0 is an error, 1 the new environment
      throw new Refusal('forbidden', [`the kernel refuses ${name.join('.')}`]);
    }
    return rt.keptField(result, 0);
  }

  /** Take step 3 for one constant of the header. Throw a Refusal if a proof must not use it. */
  checkAllowed(name) {
    const { lean } = this;
    const object = lean.rt.makeName(name);
    const constant = lean.findConstant(lean.environment, object);
    const text = name.join('.');
    if (constant === null) throw new Refusal('forbidden', [`uses the unknown ${text}`]);
    const isAxiom = lean.originalKind(object, constant) === 'axiom';
    if (COMPILED.has(keyOf(name)) || (isAxiom && !AXIOMS.has(keyOf(name)))) {
      throw new Refusal('forbidden', [`uses ${text}`]);
    }
  }
}

/** Return the Refusal of a statement, for these reasons. */
const badStatement = (...reasons) => new Refusal('bad statement', reasons);

module.exports = { Judge };

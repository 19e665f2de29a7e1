import Lean
/-!
Writes and reads the export of a proof: an elaborated proof as text. This is the first part of the
checker for a native Lean; Checker.lean is the second. install.py joins the two files, because
`lean --run` takes one file. wasm/export.js describes the same format for the WebAssembly Lean.

Each line is a JSON array without spaces. It defines a name, a universe level, an expression or a
constant, and refers to earlier lines by their number among the lines of their kind. Names and
levels are counted from 1 (0 is the anonymous name, and the level zero), expressions from 0. The
export leaves out what the kernel ignores: metadata, and the names and kinds of bound variables. The
last line refers to the value of the theorem.
-/
open Lean Elab

namespace RapidChecker

/-- An item of a line: a word of lower-case letters or digits, in quotes; a number; a list of
numbers. -/
inductive Item where
  | word (text : String)
  | num (value : Nat)
  | nums (values : List Nat)

instance : Coe String Item := ⟨.word⟩
instance : Coe Nat Item := ⟨.num⟩
instance : Coe (List Nat) Item := ⟨.nums⟩

/-- The text of an item in a line. -/
def Item.show : Item → String
  | .word text => s!"\"{text}\""
  | .num value => toString value
  | .nums values => s!"[{",".intercalate (values.map toString)}]"

/-- The names of the constants that a constant's type and value mention; for an inductive type also
its constructors. -/
def usesOf (constant : ConstantInfo) : List Name :=
  let ofType := constant.type.getUsedConstants.toList
  match constant with
  | .inductInfo value => ofType ++ value.ctors
  | _ => match constant.value? (allowOpaque := true) with
    | some value => ofType ++ value.getUsedConstants.toList
    | none => ofType

/-! ### Writing -/

/-- An object with a line of its own, to which other lines can refer. -/
inductive Node where
  | name (value : Name)
  | level (value : Level)
  | expression (value : Expr)
  deriving BEq, Hashable

/-- An export that is being written, and the next number of each kind. -/
structure Writer where
  text : String := ""
  /-- By hash: the nodes that were written, with their numbers. -/
  written : Std.TreeMap UInt64 (List (Node × Nat)) := {}
  names : Nat := 1
  levels : Nat := 1
  expressions : Nat := 0

/-- An action that writes to an export. It throws if something cannot be exported. -/
abbrev Write := StateT Writer (Except String)

/-- Append a line. -/
def writeLine (items : List Item) : Write Unit := modify fun writer =>
  { writer with text := writer.text ++ s!"[{",".intercalate (items.map (·.show))}]\n" }

/-- Return the number of `node`. If it has not been written, first write its line with `items`. -/
def numberOf (node : Node) (items : Write (List Item)) : Write Nat := do
  if let some number := ((← get).written.getD (hash node) []).lookup node then return number
  writeLine (← items)
  let writer ← get
  let (number, writer) := match node with
    | .name _ => (writer.names, { writer with names := writer.names + 1 })
    | .level _ => (writer.levels, { writer with levels := writer.levels + 1 })
    | .expression _ => (writer.expressions, { writer with expressions := writer.expressions + 1 })
  let same := writer.written.getD (hash node) []
  set { writer with written := writer.written.insert (hash node) ((node, number) :: same) }
  return number

/-- The characters of a text as numbers. -/
def codePoints (text : String) : List Nat := text.toList.map (·.toNat)

partial def writeName (name : Name) : Write Nat := match name with
  | .anonymous => return 0
  | .str pre last => numberOf (.name name) do return ["str", ← writeName pre, codePoints last]
  | .num pre last => numberOf (.name name) do return ["num", ← writeName pre, last]

partial def writeLevel (level : Level) : Write Nat := match level with
  | .zero => return 0
  | .succ below => numberOf (.level level) do return ["succ", ← writeLevel below]
  | .max a b => numberOf (.level level) do return ["max", ← writeLevel a, ← writeLevel b]
  | .imax a b => numberOf (.level level) do return ["imax", ← writeLevel a, ← writeLevel b]
  | .param name => numberOf (.level level) do return ["param", ← writeName name]
  | .mvar _ => throw "a level with a metavariable"

partial def writeExpression : Expr → Write Nat
  | .mdata _ inner => writeExpression inner
  | expression => numberOf (.expression expression) do match expression with
    | .bvar index => return ["bvar", index]
    | .sort level => return ["sort", ← writeLevel level]
    | .const name levels => return ["const", ← writeName name, ← levels.mapM writeLevel]
    | .app f x => return ["app", ← writeExpression f, ← writeExpression x]
    | .lam _ type body _ => return ["lambda", ← writeExpression type, ← writeExpression body]
    | .forallE _ type body _ => return ["forall", ← writeExpression type, ← writeExpression body]
    | .letE _ type value body _ =>
      return ["let", ← writeExpression type, ← writeExpression value, ← writeExpression body]
    | .lit (.natVal value) => return ["nat", toString value]
    | .lit (.strVal text) => return ["text", codePoints text]
    | .proj name index inner => return ["proj", ← writeName name, index, ← writeExpression inner]
    | _ => throw "a term with a metavariable or a free variable"

/-- The first word of a constant's line and its last items. `none` if a proof may not add a constant
of this kind. -/
def kindOf? : ConstantInfo → Option (String × List Item)
  | .defnInfo { hints := .opaque, .. } => some ("def", ["opaque"])
  | .defnInfo { hints := .abbrev, .. } => some ("def", ["abbrev"])
  | .defnInfo { hints := .regular height, .. } => some ("def", [height.toNat])
  | .thmInfo _ => some ("theorem", [])
  | .opaqueInfo _ => some ("opaque", [])
  | _ => none

/-- Write the line of a constant, after those of its parts. -/
def writeConstant (constant : ConstantInfo) : Write Unit := do
  let some value := constant.value? (allowOpaque := true) | throw "adds a constant without a value"
  let some (kind, hints) := kindOf? constant | throw "adds a constant of another kind"
  writeLine (.word kind :: .num (← writeName constant.name)
    :: .nums (← constant.levelParams.mapM writeName) :: .num (← writeExpression constant.type)
    :: .num (← writeExpression value) :: hints)

/-- Write the last line, with the value of the theorem. -/
def writeProof (value : Expr) : Write Unit := do writeLine ["proof", ← writeExpression value]

/-! ### Reading: everything that does not have exactly this form is refused -/

/-- Read a number at the beginning of a text; return it and the rest of the text. -/
def readNumber (text : List Char) : Except String (Nat × List Char) := do
  let (digits, rest) := text.span (·.isDigit)
  if digits matches '0' :: _ :: _ then throw "a number that begins with 0"
  let some value := (String.ofList digits).toNat? | throw "no number"
  return (value, rest)

/-- Read items with `read`, with commas between them, up to a closing bracket. -/
partial def readList {α : Type} (read : List Char → Except String (α × List Char))
    (text : List Char) (before : Array α) : Except String (List α × List Char) := do
  let (item, rest) ← read text
  match rest with
  | ',' :: rest => readList read rest (before.push item)
  | ']' :: rest => return ((before.push item).toList, rest)
  | _ => throw "a list without an end"

/-- Read an item at the beginning of a text; return it and the rest of the text. -/
def readItem : List Char → Except String (Item × List Char)
  | '"' :: rest => match rest.span fun c => c.isDigit || c.isLower with
    | (word, '"' :: rest) => return (String.ofList word, rest)
    | _ => throw "a word without an end"
  | '[' :: ']' :: rest => return (.nums [], rest)
  | '[' :: rest => do
    let (values, rest) ← readList readNumber rest #[]
    return (values, rest)
  | text => do
    let (value, rest) ← readNumber text
    return (value, rest)

/-- Read the items of a line. -/
def readLine (text : String) : Except String (List Item) := do
  let '[' :: rest := text.toList | throw "no array"
  let (items, []) ← readList readItem rest #[] | throw "more after an array"
  return items

/-- The largest de Bruijn index of a bound variable that Lean's terms can hold. -/
def maxBoundVariable : Nat := 1048574
/-- The largest depth of a level. -/
def maxLevelDepth : Nat := 1000
/-- The largest number that may be in a name, be the index of a field, or be a hint. -/
def maxNumber : Nat := 2147483647
/-- The kernel's limits for one declaration: of heartbeats, Lean's count of work, and of recursion. 0
is no limit. Heartbeats would count the reading of the export too, so the owner's time limit takes
their place. Lean's own limit of recursion, 512, is for a stack of 8 MiB; this process has 64 MiB. -/
def maxKernelHeartbeats : USize := 0
def maxKernelRecursion : USize := 8 * 512
/-- The axioms that a proof may use. -/
def trustedAxioms : List Name := [``propext, ``Classical.choice, ``Quot.sound]
/-- Constants by which the kernel would run compiled code. -/
def refusedConstants : List Name := [``Lean.reduceBool, ``Lean.reduceNat]

/-- The kernel has built-in rules for these constants, whatever their definitions are. If the header
lacks one, an export must not declare it: its definition could contradict the built-in rules. -/
def builtInConstants : List Name :=
  [`Nat, `Nat.zero, `Nat.succ, `Nat.add, `Nat.sub, `Nat.mul, `Nat.div, `Nat.mod, `Nat.gcd, `Nat.pow,
    `Nat.log2, `Nat.beq, `Nat.ble, `Nat.land, `Nat.lor, `Nat.xor, `Nat.shiftLeft, `Nat.shiftRight,
    `Bool, `Bool.true, `Bool.false, `Char, `Char.ofNat, `List, `List.nil, `List.cons, `String,
    `String.mk, `String.ofList, `Eq, `Eq.refl, `Quot, `Quot.mk, `Quot.lift, `Quot.ind,
    `Lean.reduceBool, `Lean.reduceNat, `eagerReduce]

/-- What was read of an export, by number, and the environments. -/
structure Reader where
  names : Array Name := #[.anonymous]
  levels : Array Level := #[.zero]
  expressions : Array Expr := #[]
  /-- The environment after the header. -/
  header : Kernel.Environment
  /-- Constants of the header that were found to depend on no axioms but `trustedAxioms`, and on no
  `refusedConstants`. -/
  trusted : NameSet
  /-- The constants that the statement adds. An export may repeat them, which has no effect. -/
  stated : NameSet := {}
  /-- The environment after the header, with the constants that were read. -/
  kernel : Kernel.Environment := header
  proof : Option Expr := none

/-- An action that reads from an export. It throws if the export is wrong. -/
abbrev Read := StateT Reader (Except String)

/-- The object with this number. -/
def item {α : Type} (items : Array α) (number : Nat) : Read α := do
  let some item := items[number]? | throw s!"there is no number {number}"
  return item

def readName (number : Nat) : Read Name := do item (← get).names number
def readLevel (number : Nat) : Read Level := do item (← get).levels number
def readExpression (number : Nat) : Read Expr := do item (← get).expressions number

/-- Throw if a number exceeds its limit. -/
def checkAtMost (limit value : Nat) : Read Nat := do
  if value > limit then throw s!"{value} is above {limit}"
  return value

/-- The text of these code points, which must be Unicode scalar values. -/
def readText (points : List Nat) : Read String := do
  for point in points do
    unless point < 0xD800 || (0xDFFF < point && point < 0x110000) do throw "no character"
  return String.ofList (points.map Char.ofNat)

def addName (name : Name) : Read Unit := modify fun reader =>
  { reader with names := reader.names.push name }

def addLevel (level : Level) : Read Unit := do
  if level.depth > maxLevelDepth then throw "a level is too deep"
  modify fun reader => { reader with levels := reader.levels.push level }

def addExpression (expression : Expr) : Read Unit := modify fun reader =>
  { reader with expressions := reader.expressions.push expression }

/-- Add to `trusted` the constants of the header that `names` depend on. Throw if one of them is an
axiom or a constant that may not be used. Names that the header does not have are left to the
kernel. This is a loop over a list, because the definitions of a library are too deep for recursion.
-/
partial def extendTrusted (header : Kernel.Environment) (trusted : NameSet) :
    List Name → Except String NameSet
  | [] => .ok trusted
  | name :: others =>
    if trusted.contains name then extendTrusted header trusted others
    else match header.find? name with
      | none => extendTrusted header trusted others
      | some constant =>
        if constant matches .axiomInfo _ && !trustedAxioms.contains name then
          .error s!"uses the axiom {name}"
        else if refusedConstants.contains name then .error s!"uses {name}"
        else extendTrusted header (trusted.insert name) (usesOf constant ++ others)

/-- Check that these names depend only on what may be used (`extendTrusted`). -/
def trust (names : List Name) : Read Unit := do
  let reader ← get
  set { reader with trusted := ← extendTrusted reader.header reader.trusted names }

/-- `addDeclCore` with the kernel's limits. The limit of recursion is new in Lean 4.33. -/
def addChecked (kernel : Kernel.Environment) (declaration : Declaration) :
    Except Kernel.Exception Kernel.Environment := by
  first
  | exact kernel.addDeclCore maxKernelHeartbeats maxKernelRecursion declaration none
  | exact kernel.addDeclCore maxKernelHeartbeats declaration none

/-- Have the kernel check a declaration and add it to the environment. -/
def declare (declaration : Declaration) (name : Name) : Read Unit := do
  let reader ← get
  if reader.stated.contains name then return
  if builtInConstants.contains name then throw s!"declares {name}"
  match addChecked reader.kernel declaration with
  | .ok kernel => set { reader with kernel }
  | .error _ => throw s!"the kernel refuses {name}"

/-- The reducibility hint of a definition. -/
def readHints : Item → Read ReducibilityHints
  | .word "opaque" => return .opaque
  | .word "abbrev" => return .abbrev
  | .num height => return .regular (← checkAtMost maxNumber height).toUInt32
  | _ => throw "no hints"

/-- Declare the constant of a line. -/
def declareConstant (kind : String) (name : Nat) (levels : List Nat) (type value : Nat)
    (hints := ReducibilityHints.opaque) : Read Unit := do
  let name ← readName name
  let head : ConstantVal :=
    { name, levelParams := ← levels.mapM readName, type := ← readExpression type }
  let value ← readExpression value
  match kind with
  | "def" => declare (.defnDecl { head with value, hints, safety := .safe, all := [name] }) name
  | "theorem" => declare (.thmDecl { head with value, all := [name] }) name
  | "opaque" => declare (.opaqueDecl { head with value, isUnsafe := false, all := [name] }) name
  | _ => throw "a line of no known form"

/-- Read the items of one line. -/
def readEntry (items : List Item) : Read Unit := do
  if (← get).proof.isSome then throw "more after the proof"
  match items with
  | [.word "str", .num pre, .nums last] => addName (.str (← readName pre) (← readText last))
  | [.word "num", .num pre, .num last] =>
    addName (.num (← readName pre) (← checkAtMost maxNumber last))
  | [.word "succ", .num below] => addLevel (.succ (← readLevel below))
  | [.word "max", .num a, .num b] => addLevel (.max (← readLevel a) (← readLevel b))
  | [.word "imax", .num a, .num b] => addLevel (.imax (← readLevel a) (← readLevel b))
  | [.word "param", .num name] => addLevel (.param (← readName name))
  | [.word "bvar", .num index] => addExpression (.bvar (← checkAtMost maxBoundVariable index))
  | [.word "sort", .num level] => addExpression (.sort (← readLevel level))
  | [.word "const", .num name, .nums levels] =>
    trust [← readName name]
    addExpression (.const (← readName name) (← levels.mapM readLevel))
  | [.word "app", .num f, .num x] =>
    addExpression (.app (← readExpression f) (← readExpression x))
  | [.word "lambda", .num type, .num body] =>
    addExpression (.lam `x (← readExpression type) (← readExpression body) .default)
  | [.word "forall", .num type, .num body] =>
    addExpression (.forallE `x (← readExpression type) (← readExpression body) .default)
  | [.word "let", .num type, .num value, .num body] =>
    addExpression (.letE `x (← readExpression type) (← readExpression value)
      (← readExpression body) false)
  | [.word "nat", .word digits] =>
    let (value, []) ← readNumber digits.toList | throw "no number"
    addExpression (.lit (.natVal value))
  | [.word "text", .nums points] => addExpression (.lit (.strVal (← readText points)))
  | [.word "proj", .num name, .num index, .num inner] =>
    trust [← readName name]
    addExpression
      (.proj (← readName name) (← checkAtMost maxNumber index) (← readExpression inner))
  | [.word "def", .num name, .nums levels, .num type, .num value, hints] =>
    declareConstant "def" name levels type value (← readHints hints)
  | [.word kind, .num name, .nums levels, .num type, .num value] =>
    declareConstant kind name levels type value
  | [.word "proof", .num value] =>
    let value ← readExpression value
    modify fun reader => { reader with proof := some value }
  | _ => throw "a line of no known form"

/-- Read an export that was split into lines. `number` is that of the first line, for messages. -/
def readLines (number : Nat) : List String → Read Unit
  | [] => throw "a line without an end"
  | [""] => return
  | line :: lines => do
    try readEntry (← readLine line) catch why => throw s!"line {number}: {why}"
    readLines (number + 1) lines

end RapidChecker

import { Diagnostic, setDiagnostics } from '@codemirror/lint';
import { EditorView } from '@codemirror/view';
import { Cell, CodeCell } from '@jupyterlab/cells';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { INotebookTracker } from '@jupyterlab/notebook';
import { Debouncer } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { IFinding } from './protocol';
import { KernelSession, sessionOf } from './session';
import { visible } from './text';

/** Lines that are shown of what would allow a finding. */
const MOST_LINES = 5;

/** A range of a document's, and what is said of it. */
export interface IMark {
  from: number;
  to: number;
  title: string;
  reason: string;
  remedy: string;
  /** Lines of a policy file that would allow it. */
  allows: string[];
}

/** Return a cell's editor, if it has one at the time. */
export function editorOf(cell: Cell): EditorView | null {
  return cell.editor instanceof CodeMirrorEditor ? cell.editor.editor : null;
}

/** Select a mark, or the whole line of that number, and put the cursor there. */
export function goTo(view: EditorView, where: IMark | number): void {
  const { doc } = view.state;
  const at = typeof where === 'number' ? doc.line(Math.min(Math.max(1, where), doc.lines)) : where;
  view.focus();
  view.dispatch({ selection: { anchor: at.from, head: at.to }, scrollIntoView: true });
}

/** Underline marks, in place of those that were there; each shows its words when hovered. */
export function showDiagnostics(view: EditorView, marks: readonly IMark[]): void {
  const diagnostics = marks.map((mark): Diagnostic => ({
    from: mark.from,
    to: mark.to,
    severity: 'error',
    source: 'cellblock',
    message: [`${mark.title}: ${mark.reason}.`, mark.remedy, ...toAllow(mark)].join(' ').trim(),
    renderMessage: () => tooltip(mark)
  }));
  view.dispatch(setDiagnostics(view.state, diagnostics));
}

/** Return what is said of the lines that would allow it: nothing, or an item. */
export function toAllow(mark: IMark): string[] {
  return mark.allows.length ? [`To allow it, in the policy file: ${mark.allows.join('; ')}`] : [];
}

function tooltip(mark: IMark): Node {
  const node = document.createElement('div');
  node.className = 'cb-Tooltip';
  for (const [tag, words] of [
    ['strong', mark.title],
    ['div', mark.reason],
    ['div', mark.remedy && `Instead: ${mark.remedy}`],
    ['div', toAllow(mark).join('')]
  ]) {
    if (words) {
      const line = node.appendChild(document.createElement(tag));
      line.textContent = visible(words);
    }
  }
  return node;
}

/**
 * Return where a card's finding is in a document, or null where that no longer has its line.
 *
 * A card counts columns in characters and may hold an excerpt of a long line.
 */
export function markOf(view: EditorView, finding: Readonly<Record<string, unknown>>): IMark | null {
  const { line, column, end_column, excerpt, cut, rule, reason, remedy, allows } = finding;
  const { doc } = view.state;
  if (typeof line !== 'number' || !(line >= 1 && line <= doc.lines)) {
    return null;
  }
  const { from, text } = doc.line(line);
  const chars = [...text];
  const units = (count: unknown) => chars.slice(0, Number(count)).join('').length;
  const shown = typeof excerpt === 'string' ? excerpt : '';
  if (!shown || !text.startsWith(shown, units(cut ?? 0))) {
    return null;
  }
  const words = (value: unknown) => (typeof value === 'string' ? value : '');
  return {
    from: from + units(column),
    to: from + units(end_column),
    title: words(rule),
    reason: words(reason),
    remedy: words(remedy),
    allows: Array.isArray(allows) ? allows.map(words).filter(Boolean).slice(0, MOST_LINES) : []
  };
}

function markOfFinding(view: EditorView, finding: IFinding): IMark {
  const { doc } = view.state;
  const at = (line: number, column: number) => {
    const { from, to } = doc.line(Math.min(Math.max(1, line), doc.lines));
    return Math.min(from + column, to);
  };
  return {
    from: at(finding.line, finding.column),
    to: at(finding.end_line, finding.end_column),
    title: finding.title || finding.rule,
    reason: finding.reason,
    remedy: finding.remedy,
    allows: finding.allows ?? []
  };
}

/** After how long without a key a cell is checked, in milliseconds. */
const PAUSE = 400;
/** Longer cells are not checked while they are written. */
const MOST_CHARACTERS = 20_000;

/**
 * Asks the host about the active cell's source, and underlines what it would refuse.
 *
 * An answer to a source that has changed since is dropped: the next one is on its way.
 */
export class Checker {
  constructor(private readonly _tracker: INotebookTracker) {
    _tracker.activeCellChanged.connect((_, cell) => this._follow(cell));
    _tracker.currentChanged.connect(() => this._follow(_tracker.activeCell));
    this._follow(_tracker.activeCell);
  }

  enabled = true;

  /** What was found in the active cell. */
  findings: readonly IMark[] = [];

  /** Emitted when `findings` changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  private _follow(cell: Cell | null): void {
    this._watch();
    if (cell !== this._cell) {
      this._cell?.model?.sharedModel.changed.disconnect(this._typed, this);
      this._cell = cell instanceof CodeCell ? cell : null;
      this._cell?.model.sharedModel.changed.connect(this._typed, this);
      this._found([]);
      void this._debouncer.invoke();
    }
  }

  /** Check again when another policy is in force, the first one included. */
  private _watch(): void {
    const panel = this._tracker.currentWidget;
    const session = panel && sessionOf(panel);
    if (session !== this._session) {
      this._session?.changed.disconnect(this._told, this);
      this._session = session;
      session?.changed.connect(this._told, this);
    }
  }

  private _told(session: KernelSession): void {
    const digest = session.view.state?.policy?.digest ?? '';
    if (digest !== this._digest) {
      this._digest = digest;
      void this._debouncer.invoke();
    }
  }

  private _typed(): void {
    void this._debouncer.invoke();
  }

  private async _check(): Promise<void> {
    const cell = this._cell;
    const panel = this._tracker.currentWidget;
    const view = cell && !cell.isDisposed && editorOf(cell);
    if (!this.enabled || !panel || !view || view.state.doc.length > MOST_CHARACTERS) {
      return;
    }
    const code = view.state.doc.toString();
    const findings = await sessionOf(panel).check(code);
    if (!findings || cell !== this._cell || view.state.doc.toString() !== code) {
      return;
    }
    const marks = findings.map(finding => markOfFinding(view, finding));
    showDiagnostics(view, marks);
    this._found(marks);
  }

  private _found(marks: readonly IMark[]): void {
    this.findings = marks;
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _debouncer = new Debouncer(() => this._check(), PAUSE);
  private _cell: CodeCell | null = null;
  private _session: KernelSession | null = null;
  private _digest = '';
}

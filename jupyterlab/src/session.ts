import { CodeCell } from '@jupyterlab/cells';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Throttler } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { KernelComm } from './comm';
import {
  HostMessage,
  IAudit,
  ICall,
  ICell,
  IChanges,
  ICheckpoints,
  IFinding,
  IPolicyState,
  IPorts,
  IQuestion,
  Request
} from './protocol';

/** How many cells and calls are kept for the panel. */
const MOST = 100;
/** For how long all that was missed is asked for once, in milliseconds. */
const AGAIN = 500;

/** What is known of a notebook's kernel; all of it from authentic messages of the host's. */
export interface IKernelView {
  readonly state: IPolicyState | null;
  readonly cells: ReadonlyMap<number, ICell>;
  readonly calls: ReadonlyMap<string, ICall>;
  readonly questions: ReadonlyMap<string, IQuestion>;
  readonly changes: IChanges | null;
  readonly diffs: ReadonlyMap<string, string>;
  readonly checkpoints: ICheckpoints | null;
  readonly audit: IAudit | null;
  readonly ports: IPorts | null;
  /** Why nothing that is shown can be relied on; empty as long as all can. */
  readonly distrust: string;
  /** What became of the last request. */
  readonly notice: { ok: boolean; message: string } | null;
}

const NOTHING: IKernelView = {
  state: null,
  cells: new Map(),
  calls: new Map(),
  questions: new Map(),
  changes: null,
  diffs: new Map(),
  checkpoints: null,
  audit: null,
  ports: null,
  distrust: '',
  notice: null
};

/** Whether a view may be shown as verified. */
export function isVerified(view: IKernelView): boolean {
  return view.state?.verified === true && !view.distrust;
}

/**
 * One notebook and its kernel's host, if that is cellblock's.
 *
 * A kernel that is restarted or replaced is another one: nothing of the former is kept.
 */
export class KernelSession {
  constructor(private readonly _panel: NotebookPanel) {
    const context = _panel.sessionContext;
    context.kernelChanged.connect(() => this._reconnect());
    context.statusChanged.connect((_, status) => {
      if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
        this._disconnect();
      } else if (status === 'idle' && !this._comm) {
        this._reconnect();
      }
    });
    context.connectionStatusChanged.connect((_, status) => {
      if (status === 'connected') {
        this._miss();
      }
    });
    context.disposed.connect(() => this._disconnect());
    this._reconnect();
  }

  /** Emitted when the view, or whether this is a cellblock kernel, changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get view(): IKernelView {
    return this._view;
  }

  /** Whether the notebook's kernel is a cellblock kernel. */
  get isCellblock(): boolean {
    return this._comm !== null;
  }

  /** Send a request; what it does comes back as messages. */
  send(request: Request): void {
    if (request.kind === 'answer') {
      this._answeredHere.add(request.id);
    }
    this._comm?.send(request);
  }

  /** Have the host say all of it again, but calls. */
  refresh(): void {
    const what = ['state', 'changes', 'checkpoints', 'audit', 'cells', 'question'];
    this.send({ kind: 'refresh', what });
  }

  /** Return what the host finds in a cell's source, or null where no answer can come. */
  check(code: string): Promise<IFinding[]> | null {
    if (!this._comm) {
      return null;
    }
    const id = this._comm.send({ kind: 'check', code });
    return new Promise(resolve => this._checks.set(id, resolve));
  }

  private _disconnect(): void {
    this._generation++;
    this._comm?.dispose();
    this._comm = null;
    this._checks.clear();
    this._show(NOTHING);
  }

  private _reconnect(): void {
    this._disconnect();
    const kernel = this._panel.sessionContext.session?.kernel;
    if (!kernel?.handleComms) {
      return;
    }
    const generation = this._generation;
    void kernel.info.then(info => {
      if (generation !== this._generation || !info.banner.startsWith('cellblock ')) {
        return;
      }
      const comm = new KernelComm(kernel);
      comm.received.connect((_, message) => this._take(message));
      comm.dropped.connect((_, why) => {
        console.error(`cellblock: dropped: ${why}`);
        this._show({ distrust: `${why}, and was dropped` });
      });
      comm.missed.connect(() => this._miss());
      comm.closed.connect(() => this._show({ distrust: 'the kernel does not answer this page' }));
      this._comm = comm;
      this._show({});
      this.refresh();
    });
  }

  /** Have all said again, and forget what only a message that was missed would have ended. */
  private _miss(): void {
    if (this._comm) {
      const calls = [...this._view.calls].filter(([, call]) => call.state !== 'running');
      this._show({ calls: new Map(calls), questions: new Map() });
      void this._again.invoke();
    }
  }

  private _take(message: HostMessage): void {
    const view = this._view;
    switch (message.kind) {
      case 'state':
        return this._show({ state: message });
      case 'cell':
        return this._show({ cells: latest(view.cells, message.number, message) });
      case 'call':
        return this._show({ calls: latest(view.calls, message.id, message) });
      case 'question':
        return this._show({ questions: latest(view.questions, message.id, message) });
      case 'answered':
        this._removePrompt(view.questions.get(message.id));
        return this._show({ questions: without(view.questions, message.id) });
      case 'findings':
        this._checks.get(message.id)?.(message.findings);
        this._checks.delete(message.id);
        return;
      case 'changes':
        return this._show({ changes: message, diffs: new Map() });
      case 'diff':
        return this._show({ diffs: latest(view.diffs, message.path, message.text) });
      case 'checkpoints':
        return this._show({ checkpoints: message });
      case 'audit':
        return this._show({ audit: message });
      case 'ports':
        return this._show({ ports: message });
      case 'done':
        // A check that was not done needs no word: the next one is on its way.
        if (!this._checks.delete(message.id)) {
          this._show({ notice: message.message ? message : null });
        }
        return;
    }
  }

  /**
   * Take away the prompt of a question that was answered by a button.
   *
   * JupyterLab would leave it there, and run no other cell meanwhile.
   */
  private _removePrompt(question: IQuestion | undefined): void {
    if (!question?.request || !this._answeredHere.delete(question.id)) {
      return;
    }
    this._panel.sessionContext.session?.kernel?.removeInputGuard?.(); // not in the oldest JupyterLab 4
    const cell = this._panel.content.widgets.find(
      one =>
        one instanceof CodeCell && one.outputArea.future?.msg.header.msg_id === question.request
    ) as CodeCell | undefined;
    cell?.outputArea.widgets.find(one => one.hasClass('jp-OutputArea-stdin-item'))?.dispose();
  }

  private _show(change: Partial<IKernelView>): void {
    this._view = { ...this._view, ...change };
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _again = new Throttler(() => this.refresh(), {
    limit: AGAIN,
    edge: 'trailing'
  });
  private readonly _answeredHere = new Set<string>();
  private readonly _checks = new Map<string, (findings: IFinding[]) => void>();
  private _comm: KernelComm | null = null;
  private _view = NOTHING;
  private _generation = 0;
}

function latest<K, V>(all: ReadonlyMap<K, V>, key: K, value: V): Map<K, V> {
  const entries = [...new Map(all).set(key, value)];
  return new Map(entries.slice(-MOST));
}

function without<K, V>(all: ReadonlyMap<K, V>, key: K): Map<K, V> {
  const rest = new Map(all);
  rest.delete(key);
  return rest;
}

const sessions = new WeakMap<NotebookPanel, KernelSession>();

/** Return the session of a notebook, the same each time. */
export function sessionOf(panel: NotebookPanel): KernelSession {
  let session = sessions.get(panel);
  if (!session) {
    session = new KernelSession(panel);
    sessions.set(panel, session);
  }
  return session;
}

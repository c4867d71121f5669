import { Dialog, showDialog } from '@jupyterlab/apputils';
import { isCodeCellModel } from '@jupyterlab/cells';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Button, caretDownIcon, ReactWidget, refreshIcon } from '@jupyterlab/ui-components';
import React from 'react';
import { Checker, editorOf, goTo, IMark, toAllow } from './diagnostics';
import { shieldIcon } from './icons';
import { ICall, ICell, IChanges, IPorts, IQuestion, Request } from './protocol';
import { IKernelView, isVerified, KernelSession, sessionOf } from './session';
import { iconOf, standing } from './shield';
import { count, duration, size, visible } from './text';

type Send = (request: Request) => void;

function Section(props: {
  title: string;
  count?: number;
  open?: boolean;
  children: React.ReactNode;
}): JSX.Element {
  return (
    <details className="cb-Section" open={props.open}>
      <summary>
        <caretDownIcon.react tag="span" className="cb-Icon cb-Caret" />
        {props.title}
        {props.count ? <span className="cb-Count">{props.count}</span> : null}
      </summary>
      <div className="cb-Section-body">{props.children}</div>
    </details>
  );
}

function Action(props: {
  label: string;
  about?: string;
  onClick: () => void;
  primary?: boolean;
  disabled?: boolean;
}): JSX.Element {
  return (
    <Button
      small
      className={props.primary ? 'cb-Action jp-mod-styled jp-mod-accept' : 'cb-Action'}
      aria-label={props.about ? `${props.label}: ${props.about}` : undefined}
      title={props.about}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.label}
    </Button>
  );
}

/** For how long something has to stand before a click consents to it, in milliseconds. */
const REST = 1000;

/**
 * Whether what is shown has stood for a while.
 *
 * A cell chooses when it asks: a click that was meant for what stood there before is no answer.
 */
function useRested(shown: string): boolean {
  const [rested, setRested] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = setTimeout(() => setRested(shown), REST);
    return () => clearTimeout(timer);
  }, [shown]);
  return rested === shown;
}

/** Show the first items, and all of them when that is asked for. */
function Some(props: { first: number; children: JSX.Element[] }): JSX.Element {
  const { first, children } = props;
  const [all, setAll] = React.useState(false);
  return (
    <>
      {all ? children : children.slice(0, first)}
      {!all && children.length > first && (
        <Button minimal small className="cb-Link" onClick={() => setAll(true)}>
          Show all {children.length}
        </Button>
      )}
    </>
  );
}

function Empty(props: { children: string }): JSX.Element {
  return <p className="cb-mod-muted">{props.children}</p>;
}

// --- the policy ------------------------------------------------------------------------------

/** How many rows are shown at first; of what is enforced, those of files, network and processes. */
const MOST_ENFORCED = 6;
const MOST_ROWS = 5;

function Fold(props: { className: string; title: string; children: React.ReactNode }): JSX.Element {
  return (
    <details className={`cb-Fold ${props.className}`}>
      <summary>
        <caretDownIcon.react tag="span" className="cb-Icon cb-Caret" />
        <span className="cb-Row-main">{visible(props.title)}</span>
      </summary>
      <div>{props.children}</div>
    </details>
  );
}

function Policy({ view }: { view: IKernelView }): JSX.Element {
  const { state } = view;
  if (!state) {
    return <Empty>The kernel has not said yet what it enforces.</Empty>;
  }
  return (
    <>
      {state.gaps.map(({ title, why, remedy }, index) => (
        <Fold key={index} className="cb-Gap" title={title}>
          <div className="cb-mod-muted">Asked for: {visible(why)}</div>
          {remedy && <div>→ {visible(remedy)}</div>}
        </Fold>
      ))}
      {state.budgets.map(({ name, used, limit, unit }) => (
        <label key={`${name} ${unit}`} className="cb-Budget">
          <span>{visible(name)}</span>
          <span className="cb-mod-muted">{amount(used, limit, unit)}</span>
          <progress value={used} max={limit} />
        </label>
      ))}
      <Some first={MOST_ENFORCED}>
        {state.enforced.map(({ what, how }, index) => (
          <Fold key={index} className="cb-Enforced" title={what}>
            <div className="cb-mod-muted">{visible(how)}</div>
          </Fold>
        ))}
      </Some>
    </>
  );
}

function amount(used: number, limit: number, unit: string): string {
  if (unit === 'bytes') {
    return `${size(used)} of ${size(limit)}`;
  }
  return `${used.toLocaleString('en')} of ${limit.toLocaleString('en')} ${visible(unit)}`;
}

// --- questions ---------------------------------------------------------------------------------

function Question(props: { question: IQuestion; send: Send }): JSX.Element {
  const { id, title, text, choices, yours } = props.question;
  const rested = useRested(id);
  return (
    <div className="cb-Question" role="group" aria-label={visible(title)}>
      <div className="cb-Question-title">{visible(title)}</div>
      <pre tabIndex={0} role="region" aria-label="What is asked">
        {visible(text)}
      </pre>
      {yours === false ? (
        <Empty>Answer it in the page that ran the cell.</Empty>
      ) : (
        <div className="cb-Actions">
          {choices.map(choice => (
            <Action
              key={choice.id}
              label={visible(choice.label)}
              about={choice.meaning && visible(choice.meaning)}
              disabled={!rested}
              onClick={() => props.send({ kind: 'answer', id, choice: choice.id })}
            />
          ))}
        </div>
      )}
    </div>
  );
}

// --- cells and calls -----------------------------------------------------------------------------

const STATES: Record<ICell['state'] | ICall['state'], [string, string]> = {
  running: ['●', 'running'],
  done: ['✓', 'done'],
  error: ['✗', 'ended with an error'],
  failed: ['✗', 'failed'],
  refused: ['⊘', 'not run'],
  denied: ['⊘', 'denied'],
  killed: ['■', 'stopped'],
  interrupted: ['■', 'interrupted']
};

function State(props: { state: ICell['state'] | ICall['state'] }): JSX.Element {
  const [symbol, words] = STATES[props.state] ?? ['?', 'unknown'];
  return (
    <span className="cb-State" data-state={props.state} role="img" aria-label={words} title={words}>
      {symbol}
    </span>
  );
}

function Cells(props: { cells: ICell[]; reveal: (cell: ICell) => void }): JSX.Element {
  return (
    <div role="list">
      <Some first={MOST_ROWS}>
        {props.cells.map(cell => (
          <div role="listitem" key={cell.number} className="cb-Row">
            <State state={cell.state} />
            <div className="cb-Row-main">
              <Button
                minimal
                small
                className="cb-Source"
                title="Show this cell"
                onClick={() => props.reveal(cell)}
              >
                <span className="cb-mod-muted">[{cell.number}]</span> {visible(cell.source)}
              </Button>
              <div className="cb-mod-muted">
                {[
                  cell.seconds !== null && duration(cell.seconds),
                  cell.memory_bytes !== null && size(cell.memory_bytes),
                  cell.output_bytes ? `${size(cell.output_bytes)} of output` : '',
                  cell.calls ? count(cell.calls, 'call') : ''
                ]
                  .filter(Boolean)
                  .join(' · ') || STATES[cell.state]?.[1]}
              </div>
            </div>
          </div>
        ))}
      </Some>
    </div>
  );
}

function Calls({ calls }: { calls: ICall[] }): JSX.Element {
  return (
    <div role="list">
      <Some first={MOST_ROWS}>
        {calls.map(call => (
          <div role="listitem" key={call.id} className="cb-Row">
            <State state={call.state} />
            <div className="cb-Row-main">
              <code title={visible(call.arguments)}>
                {visible(call.tool)}({visible(call.arguments)})
              </code>
              <div className="cb-mod-muted">
                cell [{call.cell}]{call.seconds !== null ? ` · ${duration(call.seconds)}` : ''}
              </div>
            </div>
          </div>
        ))}
      </Some>
    </div>
  );
}

// --- what the check found -------------------------------------------------------------------------

function Findings(props: { findings: readonly IMark[]; go: (mark: IMark) => void }): JSX.Element {
  return (
    <ul className="cb-List">
      {props.findings.map((mark, index) => (
        <li key={index} className="cb-Row">
          <div className="cb-Row-main">
            <Button
              minimal
              small
              className="cb-Link"
              title="Show this place"
              onClick={() => props.go(mark)}
            >
              {visible(mark.title)}
            </Button>
            <div>{visible(mark.reason)}</div>
            {mark.remedy && <div className="cb-mod-muted">Instead: {visible(mark.remedy)}</div>}
            {toAllow(mark).map(line => (
              <div key={line} className="cb-mod-muted">
                {visible(line)}
              </div>
            ))}
          </div>
        </li>
      ))}
    </ul>
  );
}

// --- staged changes ---------------------------------------------------------------------------------

function Diff({ text }: { text: string }): JSX.Element {
  return (
    <pre className="cb-Diff" tabIndex={0} role="region" aria-label="Difference">
      {visible(text)
        .split('\n')
        .map((line, index) => (
          <span key={index} data-sign={/^(\+\+\+|---) /.test(line) ? '@' : line.charAt(0)}>
            {line}
            {'\n'}
          </span>
        ))}
    </pre>
  );
}

async function sure(title: string, body: string, label: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label })];
  return (await showDialog({ title, body, buttons })).button.accept;
}

/** A staged file; `keep` is null while what is shown has not stood long enough. */
function Change(props: {
  list: IChanges;
  file: IChanges['files'][number];
  diff: string | undefined;
  look: () => void;
  keep: (() => void) | null;
  drop: () => void;
}): JSX.Element {
  const { path, kind, bytes, note, keepable } = props.file;
  const { diff, keep } = props;
  const [open, setOpen] = React.useState(false);
  const wanted = open && diff === undefined;
  // Also when the list is a new one: a difference that was shown is none of its.
  React.useEffect(() => {
    if (wanted) {
      props.look();
    }
  }, [wanted, props.list]);
  return (
    <li className="cb-Change">
      <details onToggle={event => setOpen(event.currentTarget.open)}>
        <summary>
          <caretDownIcon.react tag="span" className="cb-Icon cb-Caret" />
          <div className="cb-Row-main">
            <code title={visible(path)}>{visible(path)}</code>
            <div className="cb-mod-muted">
              {[kind, bytes === null ? '' : size(bytes), visible(note ?? '')]
                .filter(Boolean)
                .join(' · ')}
            </div>
          </div>
        </summary>
        {diff === undefined ? <Empty>Waiting for the difference.</Empty> : <Diff text={diff} />}
      </details>
      <div className="cb-Actions">
        {keepable !== false && (
          <Action label="Keep" about={visible(path)} disabled={!keep} onClick={() => keep?.()} />
        )}
        <Action label="Drop" about={visible(path)} onClick={props.drop} />
      </div>
    </li>
  );
}

function Changes(props: { changes: IChanges; diffs: IKernelView['diffs']; send: Send }) {
  const { changes, diffs, send } = props;
  const rested = useRested(changes.digest);
  const keep = (paths: string[]) => send({ kind: 'keep', digest: changes.digest, paths });
  const drop = async (paths: string[]) => {
    const which = paths.length ? paths[0] : `all ${count(changes.files.length, 'file')}`;
    const body = 'What cells wrote there will be lost. Your own files stay as they are.';
    if (await sure(`Drop ${visible(which)}?`, body, 'Drop')) {
      send({ kind: 'drop', paths });
    }
  };
  const anyKept = changes.files.some(file => file.keepable !== false);
  return (
    <>
      <Empty>{changes.problem || 'Your files are as they were until you keep these.'}</Empty>
      <ul className="cb-List">
        {changes.files.map(file => (
          <Change
            key={file.path}
            list={changes}
            file={file}
            diff={diffs.get(file.path)}
            look={() => send({ kind: 'diff', path: file.path })}
            keep={rested ? () => keep([file.path]) : null}
            drop={() => void drop([file.path])}
          />
        ))}
      </ul>
      {changes.left_out ? <Empty>{`and ${count(changes.left_out, 'more file')}`}</Empty> : null}
      {changes.files.length > 1 && (
        <div className="cb-Actions">
          {anyKept && <Action label="Keep all" disabled={!rested} onClick={() => keep([])} />}
          <Action label="Drop all" onClick={() => void drop([])} />
        </div>
      )}
    </>
  );
}

// --- checkpoints and audit ---------------------------------------------------------------------------

function Checkpoints({ view, send }: { view: IKernelView; send: Send }): JSX.Element {
  const steps = view.checkpoints?.steps ?? [];
  const named = view.checkpoints?.named ?? [];
  const [name, setName] = React.useState('');
  const restore = async (to: string) => {
    const body = 'Variables go back to what they were there. Files and output stay.';
    if (await sure(`Restore ${visible(to)}?`, body, 'Restore')) {
      send({ kind: 'restore', name: to });
    }
  };
  return (
    <>
      {steps.length > 0 ? (
        <div className="cb-Row">
          <div className="cb-Row-main">
            <div>Last step</div>
            <code className="cb-Source">
              <span className="cb-mod-muted">[{steps[0].number}]</span> {visible(steps[0].source)}
            </code>
          </div>
          <Action label="Undo" about="the last step" onClick={() => send({ kind: 'undo' })} />
        </div>
      ) : (
        <Empty>There is no step to undo yet.</Empty>
      )}
      <ul className="cb-List">
        {named.map(point => (
          <li key={point.name} className="cb-Row">
            <div className="cb-Row-main">
              <div>{visible(point.name)}</div>
              <div className="cb-mod-muted">
                {point.cell === null ? '' : `after cell [${point.cell}]`}
              </div>
            </div>
            <Action
              label="Restore"
              about={visible(point.name)}
              onClick={() => void restore(point.name)}
            />
          </li>
        ))}
      </ul>
      <form
        className="cb-Form"
        onSubmit={event => {
          event.preventDefault();
          send({ kind: 'checkpoint', name: name.trim() });
          setName('');
        }}
      >
        <input
          className="jp-mod-styled"
          aria-label="Name of a new checkpoint"
          placeholder="New checkpoint"
          value={name}
          onChange={event => setName(event.target.value)}
        />
        <Button small className="cb-Action" type="submit" disabled={!name.trim()}>
          Save
        </Button>
      </form>
    </>
  );
}

/** Return the time of day, here; as it came where it is no time. */
function timeOf(time: string): string {
  const at = new Date(time);
  return isNaN(at.getTime()) ? visible(time) : at.toLocaleTimeString();
}

function Audit({ view }: { view: IKernelView }): JSX.Element {
  const records = view.audit?.records ?? [];
  return records.length ? (
    <ol className="cb-List cb-Audit">
      {[...records].reverse().map(record => (
        <li key={`${record.time} ${record.text}`}>
          <details>
            <summary>
              <caretDownIcon.react tag="span" className="cb-Icon cb-Caret" />
              <span className="cb-mod-muted" title={visible(record.time)}>
                {timeOf(record.time)}
              </span>
              <span className="cb-Row-main">{visible(record.words)}</span>
            </summary>
            <code>
              {visible(record.kind)} {visible(record.text)}
            </code>
          </details>
        </li>
      ))}
    </ol>
  ) : (
    <Empty>No records, or this kernel keeps no audit log.</Empty>
  );
}

// --- servers of cells ---------------------------------------------------------------------------------

/** What an address of the host's looks like: nothing else is made a link. */
const ADDRESS = /^http:\/\/[0-9a-f]{16}\.localhost:[0-9]{1,5}\/$/;

function Ports({ ports }: { ports: IPorts['ports'] }): JSX.Element {
  return (
    <div role="list">
      <Some first={MOST_ROWS}>
        {ports.map(({ number, url, listens }) => (
          <div role="listitem" key={number} className="cb-Row">
            <div className="cb-Row-main">
              {ADDRESS.test(url) ? (
                <a href={url} target="_blank" rel="noopener noreferrer" className="cb-Port">
                  {url}
                </a>
              ) : (
                <code>{visible(url)}</code>
              )}
              <div className="cb-mod-muted">
                port {number} · {listens ? 'a server listens' : 'nothing listens yet'}
              </div>
            </div>
          </div>
        ))}
      </Some>
    </div>
  );
}

// --- the panel ------------------------------------------------------------------------------------------

function Content(props: {
  view: IKernelView;
  send: Send;
  refresh: () => void;
  findings: readonly IMark[];
  go: (mark: IMark) => void;
  reveal: (cell: ICell) => void;
}): JSX.Element {
  const { view, send } = props;
  const { state } = view;
  const icon = iconOf(view);
  const questions = [...view.questions.values()];
  const cells = [...view.cells.values()].reverse();
  const calls = [...view.calls.values()].reverse();
  return (
    <>
      <div className="cb-Head" data-standing={isVerified(view) ? 'good' : 'bad'}>
        <icon.react tag="span" className="cb-Icon cb-Head-icon" />
        <div className="cb-Row-main">
          <h2>{state?.policy ? `Policy ${visible(state.policy.name)}` : 'cellblock'}</h2>
          <div className="cb-mod-muted">
            {[state?.backend, state?.policy && `mode ${state.policy.mode}`]
              .filter(Boolean)
              .join(' · ')}
          </div>
          <div>{standing(view)}</div>
        </div>
        <Button minimal small title="Refresh" aria-label="Refresh" onClick={props.refresh}>
          <refreshIcon.react tag="span" className="cb-Icon" />
        </Button>
      </div>
      <div className="cb-Notice" role="status" data-ok={view.notice?.ok ?? true}>
        {view.notice ? visible(view.notice.message) : ''}
      </div>
      {questions.length > 0 && (
        <Section title="Questions" count={questions.length} open>
          {questions.map(question => (
            <Question key={question.id} question={question} send={send} />
          ))}
        </Section>
      )}
      {props.findings.length > 0 && (
        <Section title="In this cell" count={props.findings.length} open>
          <Findings findings={props.findings} go={props.go} />
        </Section>
      )}
      <Section title="Policy" open>
        <Policy view={view} />
      </Section>
      <Section title="Cells" count={cells.length} open>
        {cells.length ? (
          <Cells cells={cells} reveal={props.reveal} />
        ) : (
          <Empty>No cell has run yet.</Empty>
        )}
      </Section>
      {calls.length > 0 && (
        <Section title="Calls" count={calls.length} open>
          <Calls calls={calls} />
        </Section>
      )}
      {view.ports && (
        <Section title="Ports" count={view.ports.ports.length} open>
          {view.ports.ports.length ? (
            <Ports ports={view.ports.ports} />
          ) : (
            <Empty>No cell listens at a port.</Empty>
          )}
        </Section>
      )}
      {view.changes && (view.changes.files.length > 0 || view.changes.problem) && (
        <Section title="Staged changes" count={view.changes.files.length} open>
          <Changes changes={view.changes} diffs={view.diffs} send={send} />
        </Section>
      )}
      <Section title="Checkpoints" count={view.checkpoints?.named.length} open>
        <Checkpoints view={view} send={send} />
      </Section>
      <Section title="Audit">
        <Audit view={view} />
      </Section>
    </>
  );
}

/** The side bar's panel about the current notebook's kernel. */
export class Panel extends ReactWidget {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _checker: Checker
  ) {
    super();
    this.id = 'cellblock-panel';
    this.addClass('cb-Panel');
    this.title.icon = shieldIcon;
    this.title.caption = 'cellblock';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'cellblock');
    _tracker.currentChanged.connect((_, panel) => this._follow(panel));
    _checker.changed.connect(() => this.update());
    this._follow(_tracker.currentWidget);
  }

  protected render(): JSX.Element {
    const session = this._session;
    if (!session?.isCellblock) {
      return <Empty>The current notebook&apos;s kernel is not a cellblock kernel.</Empty>;
    }
    return (
      <Content
        view={session.view}
        send={request => session.send(request)}
        refresh={() => session.refresh()}
        findings={this._checker.findings}
        go={mark => this._go(mark)}
        reveal={cell => this._reveal(cell)}
      />
    );
  }

  private _follow(panel: NotebookPanel | null): void {
    this._session?.changed.disconnect(this.update, this);
    this._session = panel && sessionOf(panel);
    this._session?.changed.connect(this.update, this);
    this.update();
  }

  private _go(mark: IMark): void {
    const view = this._tracker.activeCell && editorOf(this._tracker.activeCell);
    if (view) {
      goTo(view, mark);
    }
  }

  private _reveal(ran: ICell): void {
    const notebook = this._tracker.currentWidget?.content;
    const index = notebook?.widgets.findIndex(
      ({ model }) =>
        isCodeCellModel(model) &&
        (ran.id ? model.id === ran.id : model.executionCount === ran.number)
    );
    if (notebook && index !== undefined && index >= 0) {
      notebook.activeCellIndex = index;
      void notebook.scrollToItem(index, 'smart');
    }
  }

  private _session: KernelSession | null = null;
}

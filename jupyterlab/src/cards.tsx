import { Clipboard } from '@jupyterlab/apputils';
import { Cell } from '@jupyterlab/cells';
import { IRenderMime } from '@jupyterlab/rendermime';
import { Button, ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';
import { editorOf, goTo, IMark, markOf, showDiagnostics } from './diagnostics';
import { count, duration, size, visible } from './text';

/*
 * Cards in the theme's colours, made of a card's JSON.
 *
 * The JSON may come from the file of a stranger, so it is read field by field, shown as text, and no
 * card has a button that does more than move the cursor, or copy the lines that are shown above it. A type that is not drawn here, or data of
 * another shape, is shown as the HTML or the text that the kernel sent beside it.
 */

type Data = Readonly<Record<string, unknown>>;
type Tone = 'error' | 'warn' | 'info' | 'success';

/** Items of a list that are read; a card that the kernel makes draws fewer. */
const MOST_ITEMS = 200;
const TYPE = /^application\/vnd\.cellblock\.(\w+)\+json$/;

function data(value: unknown): Data {
  return typeof value === 'object' && value !== null ? (value as Data) : {};
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function number(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value.slice(0, MOST_ITEMS) : [];
}

function texts(value: unknown): string[] {
  return list(value).map(text).filter(Boolean);
}

const SYMBOLS: Record<Tone, string> = { error: '⊘', warn: '!', info: 'i', success: '✓' };

function Card(props: {
  title: string;
  tone: Tone;
  symbol?: string;
  chips?: [string, unknown][];
  children?: React.ReactNode;
}): JSX.Element {
  const chips = (props.chips ?? []).filter(([, value]) => text(value));
  const title = visible(props.title);
  return (
    <div className="cb-Card" data-tone={props.tone} role="group" aria-label={title}>
      <div className="cb-Card-head">
        <span className="cb-Card-symbol" aria-hidden="true">
          {props.symbol ?? SYMBOLS[props.tone]}
        </span>
        <div className="cb-Card-title" role="heading" aria-level={3}>
          {title}
        </div>
        {chips.map(([label, value]) => (
          <span className="cb-Chip" key={label}>
            {label}: <b>{visible(text(value))}</b>
          </span>
        ))}
      </div>
      {props.children}
    </div>
  );
}

function Paragraph(props: { muted?: boolean; children: React.ReactNode }): JSX.Element {
  return <p className={props.muted ? 'cb-mod-muted' : undefined}>{props.children}</p>;
}

function Code(props: { children: string }): JSX.Element {
  return <code>{visible(props.children)}</code>;
}

function Lines(props: { lines: string[] }): JSX.Element | null {
  return props.lines.length ? <pre>{visible(props.lines.join('\n'))}</pre> : null;
}

function Instead(props: { remedy: string; label?: string }): JSX.Element | null {
  return props.remedy ? (
    <Paragraph>
      <strong>{visible(props.label || 'Instead: ')}</strong>
      {visible(props.remedy)}
    </Paragraph>
  ) : null;
}

/** The lines of a policy file that would allow it, to be copied, and where they go. */
function Allowing({ card }: { card: Data }): JSX.Element | null {
  // What is copied is what is shown: a stranger's file can hide nothing among the lines.
  const lines = texts(card.write).map(visible);
  const [copied, setCopied] = React.useState(false);
  if (!lines.length) {
    return null;
  }
  const copy = () => {
    Clipboard.copyToSystem(lines.join('\n') + '\n');
    setCopied(true);
  };
  return (
    <>
      <Paragraph>{visible(text(card.allow))}</Paragraph>
      <div className="cb-Block">
        <Lines lines={lines} />
        <Button minimal small className="cb-Block-copy" title="Copy these lines" onClick={copy}>
          {copied ? 'Copied' : 'Copy'}
        </Button>
      </div>
    </>
  );
}

// --- a refused cell --------------------------------------------------------------------------

const MOST_FINDINGS = 50;

/** One line of what was refused: where, what and why, as the kernel words it. */
function Row(props: { row: Data; go: (() => void) | null }): JSX.Element {
  const { row, go } = props;
  const place = text(row.place);
  const what = text(row.what);
  return (
    <p className="cb-Finding">
      {go ? (
        <Button minimal small className="cb-Link" title="Go to this line" onClick={go}>
          {visible(place)}
        </Button>
      ) : (
        <span className="cb-mod-muted">{visible(place)}</span>
      )}{' '}
      {what && <Code>{what}</Code>}
      {what && (row.several === true ? ': ' : ' ')}
      {visible(text(row.why))}
    </p>
  );
}

function Denial(props: { card: Data; widget: CardWidget }): JSX.Element {
  const { card, widget } = props;
  const rows = list(card.rows).map(data);
  const findings = list(card.findings).map(data);
  const left = number(card.left);
  return (
    <Card title={text(card.title)} tone="error" chips={[['policy', card.policy]]}>
      {rows.slice(0, MOST_FINDINGS).map((row, index) => {
        const finding = findings[number(row.finding)];
        const go = widget.cell && finding ? () => widget.goTo(finding) : null;
        return <Row key={index} row={row} go={go} />;
      })}
      {left > 0 && <Paragraph muted>And {count(left, 'more finding')}.</Paragraph>}
      {list(card.instead)
        .map(data)
        .map((one, index) => (
          <React.Fragment key={index}>
            <Instead label={text(one.label)} remedy={text(one.text)} />
            <Lines lines={texts(one.rewrite).slice(0, 2)} />
          </React.Fragment>
        ))}
      <Allowing card={card} />
    </Card>
  );
}

// --- what ran and was refused something, or stopped ----------------------------------------------

function Refusal({ card }: { card: Data }): JSX.Element {
  const rewrite = text(card.rewrite).split('\n').filter(Boolean);
  const instead = text(card.instead);
  return (
    <Card title={text(card.title)} tone="warn" symbol="⊘" chips={[['policy', card.policy]]}>
      {text(card.asked) && (
        <Paragraph>
          It asked for <Code>{text(card.asked)}</Code>.
        </Paragraph>
      )}
      {text(card.advice) && (
        <Paragraph>
          In this cell, {visible(text(card.advice))}
          {rewrite.length ? '. Instead:' : '.'}
        </Paragraph>
      )}
      <Lines lines={rewrite} />
      <Allowing card={card} />
      {instead && <Paragraph muted>{visible(instead)}</Paragraph>}
    </Card>
  );
}

function Outcome({ card }: { card: Data }): JSX.Element {
  const [variables, ...notes] = texts(card.notes);
  const gone = card.state === 'gone';
  return (
    <Card title={text(card.title)} tone={gone ? 'error' : 'warn'} symbol="■">
      <Paragraph>{gone ? <strong>{visible(variables)}</strong> : visible(variables)}</Paragraph>
      {notes.map((note, index) => (
        <Paragraph key={index} muted>
          {visible(note)}
        </Paragraph>
      ))}
    </Card>
  );
}

function Problem({ card }: { card: Data }): JSX.Element {
  const facts = (['file', 'key', 'value'] as const).filter(name => text(card[name]));
  return (
    <Card title={text(card.title)} tone="error" symbol="!">
      {text(card.detail) && <Paragraph>{visible(text(card.detail))}</Paragraph>}
      {facts.map(name => (
        <Paragraph key={name}>
          <strong>{name.charAt(0).toUpperCase() + name.slice(1)}: </strong>
          <Code>{text(card[name])}</Code>
        </Paragraph>
      ))}
      <Instead remedy={text(card.remedy)} />
    </Card>
  );
}

// --- the policy's gaps, what cells took, what they staged ----------------------------------------

function Gaps({ card }: { card: Data }): JSX.Element {
  const gaps = list(card.gaps).map(data);
  const title = text(card.title);
  const shown = gaps.map(gap => text(gap.consequence)).filter(line => !title.endsWith(line));
  const remedies = [...new Set(gaps.map(gap => text(gap.remedy)).filter(Boolean))];
  const tone = card.backend === 'noop' ? 'error' : gaps.length ? 'warn' : 'success';
  return (
    <Card
      title={title}
      tone={tone}
      chips={[
        ['policy', card.policy],
        ['backend', card.backend]
      ]}
    >
      {shown.map((line, index) => (
        <Paragraph key={index}>{visible(line)}</Paragraph>
      ))}
      {remedies.map(remedy => (
        <Paragraph key={remedy} muted>
          → {visible(remedy)}
        </Paragraph>
      ))}
    </Card>
  );
}

function Usage({ card }: { card: Data }): JSX.Element {
  const heads = ['cell', 'wall', 'cpu', 'peak', 'out', 'read'];
  return (
    <Card title={text(card.title)} tone="info">
      <div className="cb-Card-scroll" tabIndex={0} role="region" aria-label="What cells took">
        <table>
          <thead>
            <tr>
              {heads.map(head => (
                <th key={head} scope="col">
                  {head}
                </th>
              ))}
              <th scope="col" className="cb-mod-text">
                begins
              </th>
            </tr>
          </thead>
          <tbody>
            {list(card.cells)
              .map(data)
              .map((cell, index) => (
                <tr key={index}>
                  <td>{number(cell.number)}</td>
                  <td>{duration(number(cell.wall_seconds))}</td>
                  <td>{duration(number(cell.cpu_seconds))}</td>
                  <td>{size(number(cell.peak_memory_bytes))}</td>
                  <td>{size(number(cell.output_bytes))}</td>
                  <td>{size(number(cell.read_bytes))}</td>
                  <td className="cb-mod-text">
                    <Code>{text(cell.line)}</Code>
                  </td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

const CARDS: Partial<Record<string, (props: { card: Data; widget: CardWidget }) => JSX.Element>> = {
  denial: Denial,
  enforcement: Gaps,
  outcome: Outcome,
  problem: Problem,
  refusal: Refusal,
  usage: Usage
};

class CardWidget extends ReactWidget implements IRenderMime.IRenderer {
  constructor(private readonly _mimeType: string) {
    super();
    this.addClass('cb-RenderedCard');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._card = data(model.data[this._mimeType]);
    this._plain = text(model.data['text/plain']);
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  /** The cell that this is an output of, or null. */
  get cell(): Cell | null {
    for (let widget = this.parent; widget; widget = widget.parent) {
      if (widget instanceof Cell) {
        return widget;
      }
    }
    return null;
  }

  /** Select what a finding is about in the cell, or its line where that has changed. */
  goTo(finding: Data): void {
    const editor = this.cell && editorOf(this.cell);
    if (editor) {
      goTo(editor, markOf(editor, finding) ?? number(finding.line));
    }
  }

  protected override onAfterAttach(message: Parameters<ReactWidget['onAfterAttach']>[0]): void {
    super.onAfterAttach(message);
    this.update();
    const cell = this.cell;
    if (cell && TYPE.exec(this._mimeType)?.[1] === 'denial') {
      void cell.ready.then(() => this._underline(cell));
    }
  }

  protected render(): JSX.Element {
    const Drawn = CARDS[TYPE.exec(this._mimeType)?.[1] ?? ''];
    // Cards of earlier versions have no rows; their text says all.
    const isOld = Drawn === Denial && !list(this._card.rows).length;
    const drawable = Drawn && text(this._card.title) && !isOld;
    return drawable ? <Drawn card={this._card} widget={this} /> : <Lines lines={[this._plain]} />;
  }

  /** Underline the findings where the cell still has what they are about. */
  private _underline(cell: Cell): void {
    const editor = editorOf(cell);
    if (!editor || cell.isDisposed) {
      return;
    }
    const marks = list(this._card.findings)
      .slice(0, MOST_FINDINGS)
      .map(finding => markOf(editor, data(finding)));
    showDiagnostics(
      editor,
      marks.filter((mark): mark is IMark => mark !== null)
    );
  }

  private _card: Data = {};
  private _plain = '';
}

/** Draws what is listed here; every other card keeps its HTML. */
export const cardFactory: IRenderMime.IRendererFactory = {
  safe: true,
  mimeTypes: Object.keys(CARDS).map(kind => `application/vnd.cellblock.${kind}+json`),
  defaultRank: 40,
  createRenderer: options => new CardWidget(options.mimeType)
};

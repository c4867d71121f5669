import { NotebookPanel } from '@jupyterlab/notebook';
import { Button, LabIcon, ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';
import { shieldIcon, unverifiedIcon, verifiedIcon } from './icons';
import { IKernelView, isVerified, sessionOf } from './session';
import { count, visible } from './text';

/** Return the icon that stands for what is known of a kernel. */
export function iconOf(view: IKernelView): LabIcon {
  if (!view.state && !view.distrust) {
    return shieldIcon;
  }
  return isVerified(view) ? verifiedIcon : unverifiedIcon;
}

/** Return whether what is shown is enforced, in a sentence or two. */
export function standing(view: IKernelView): string {
  if (view.distrust) {
    return `Not verified: ${view.distrust}.`;
  }
  if (!view.state) {
    return 'Waiting for the kernel.';
  }
  return view.state.verified
    ? 'Verified.'
    : `Not verified. ${view.state.unverified_because ?? 'The kernel does not say why.'}`;
}

/**
 * A button with a shield and a policy's name, which opens the panel.
 *
 * It is there only for a notebook whose kernel is cellblock's. The one in the status bar follows
 * the current notebook, that of a toolbar has its own.
 */
export class Shield extends ReactWidget {
  constructor(
    private readonly _open: () => void,
    private readonly _withBackend: boolean
  ) {
    super();
    this.addClass('cb-Shield');
    this.hide();
  }

  /** Show the kernel of a notebook from now on. */
  follow(panel: NotebookPanel | null): void {
    if (panel !== this._panel) {
      if (this._panel) {
        sessionOf(this._panel).changed.disconnect(this._refresh, this);
      }
      this._panel = panel;
      if (panel) {
        sessionOf(panel).changed.connect(this._refresh, this);
      }
    }
    this._refresh();
  }

  protected render(): JSX.Element | null {
    if (!this._panel) {
      return null;
    }
    const { view } = sessionOf(this._panel);
    const { state, questions } = view;
    const name = state?.policy ? visible(state.policy.name) : 'cellblock';
    const about = [
      state?.policy ? `cellblock policy ${name}` : 'cellblock',
      state ? `, backend ${state.backend}` : '',
      `. ${standing(view)}`,
      questions.size ? ` ${count(questions.size, 'question')} for you.` : ''
    ];
    const title = about.join('');
    const icon = iconOf(view);
    return (
      <Button
        minimal
        small
        className="cb-Shield-button"
        data-standing={!state && !view.distrust ? 'waiting' : isVerified(view) ? 'good' : 'bad'}
        title={title}
        aria-label={title}
        onClick={this._open}
      >
        <icon.react tag="span" className="cb-Icon" />
        <span>
          {name}
          {this._withBackend && state ? ` · ${state.backend}` : ''}
        </span>
        {questions.size > 0 && <span className="cb-Count">{questions.size}</span>}
      </Button>
    );
  }

  private _refresh(): void {
    this.setHidden(!this._panel || !sessionOf(this._panel).isCellblock);
    this.update();
  }

  private _panel: NotebookPanel | null = null;
}

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { nextDiagnostic } from '@codemirror/lint';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { cardFactory } from './cards';
import { Checker, editorOf } from './diagnostics';
import { Panel } from './panel';
import { sessionOf } from './session';
import { Shield } from './shield';

const SHOW_PANEL = 'cellblock:show-panel';
const NEXT_FINDING = 'cellblock:next-finding';

const cards: JupyterFrontEndPlugin<void> = {
  id: 'cellblock-lab:cards',
  description: "Draws cellblock's cards in the theme's colours.",
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, rendermime: IRenderMimeRegistry) => {
    rendermime.addFactory(cardFactory);
  }
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'cellblock-lab:plugin',
  description: 'Shows what a cellblock kernel enforces, and checks cells while they are written.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IToolbarWidgetRegistry, ISettingRegistry, IStatusBar, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    toolbars: IToolbarWidgetRegistry | null,
    settings: ISettingRegistry | null,
    statusBar: IStatusBar | null,
    palette: ICommandPalette | null
  ) => {
    const checker = new Checker(tracker);
    const panel = new Panel(tracker, checker);
    app.shell.add(panel, 'right', { rank: 900 });

    app.commands.addCommand(SHOW_PANEL, {
      label: 'Show cellblock',
      execute: () => app.shell.activateById(panel.id)
    });
    app.commands.addCommand(NEXT_FINDING, {
      label: 'Go to the next finding of cellblock in this cell',
      execute: () => {
        const view = tracker.activeCell && editorOf(tracker.activeCell);
        if (view) {
          nextDiagnostic(view);
        }
      }
    });
    for (const command of [SHOW_PANEL, NEXT_FINDING]) {
      palette?.addItem({ command, category: 'cellblock' });
    }

    const show = () => void app.commands.execute(SHOW_PANEL);
    tracker.widgetAdded.connect((_, notebook) => void sessionOf(notebook));
    toolbars?.addFactory<NotebookPanel>('Notebook', 'cellblock', notebook => {
      const shield = new Shield(show, false);
      shield.follow(notebook);
      return shield;
    });
    if (statusBar) {
      const item = new Shield(show, true);
      const follow = () => item.follow(tracker.currentWidget);
      tracker.currentChanged.connect(follow);
      follow();
      statusBar.registerStatusItem('cellblock:shield', {
        item,
        align: 'left',
        rank: 3,
        priority: 1
      });
    }
    void settings?.load(plugin.id).then(loaded => {
      const apply = () => {
        checker.enabled = loaded.get('checkAsYouType').composite !== false;
      };
      loaded.changed.connect(apply);
      apply();
    });
  }
};

export default [cards, plugin];

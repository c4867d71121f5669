/**
 * What the kernel's host and the front end say to each other over the comm `cellblock.lab`.
 *
 * The host's messages come with a MAC under a secret of this page's, see `comm.ts`.
 */

export interface IPolicyState {
  kind: 'state';
  /** Null where none is in force. */
  policy: { name: string; mode: string; digest: string } | null;
  backend: string;
  verified: boolean;
  unverified_because: string | null;
  enforced: { what: string; how: string }[];
  gaps: { title: string; why: string; remedy?: string; matters?: boolean }[];
  budgets: { name: string; used: number; limit: number; unit: string }[];
}

export interface ICell {
  kind: 'cell';
  number: number;
  /** The cell's id in the notebook; empty where the front end sent none. */
  id?: string;
  source: string;
  state: 'running' | 'done' | 'error' | 'refused' | 'killed' | 'interrupted';
  seconds: number | null;
  memory_bytes: number | null;
  output_bytes: number | null;
  calls: number | null;
}

export interface ICall {
  kind: 'call';
  id: string;
  cell: number;
  tool: string;
  arguments: string;
  state: 'running' | 'done' | 'failed' | 'denied';
  seconds: number | null;
}

export interface IQuestion {
  kind: 'question';
  id: string;
  title: string;
  text: string;
  choices: { id: string; label: string; meaning?: string }[];
  /** Whether it is for this page, whose cell it is about. */
  yours?: boolean;
  /** The id of the execute_request of that cell. */
  request?: string;
}

/** Lines count from 1, columns from 0 in UTF-16 code units, as the editor counts. */
export interface IFinding {
  rule: string;
  title: string;
  reason: string;
  remedy: string;
  /** Lines of a policy file that would allow it. */
  allows?: string[];
  line: number;
  column: number;
  end_line: number;
  end_column: number;
}

export interface IFindings {
  kind: 'findings';
  id: string;
  findings: IFinding[];
}

export interface IChanges {
  kind: 'changes';
  digest: string;
  files: {
    path: string;
    kind: 'new' | 'changed' | 'deleted';
    bytes: number | null;
    note?: string;
    keepable?: boolean;
  }[];
  left_out?: number;
  problem?: string;
}

export interface ICheckpoints {
  kind: 'checkpoints';
  steps: { number: number; source: string }[];
  named: { name: string; cell: number | null }[];
}

export interface IAudit {
  kind: 'audit';
  records: { time: string; kind: string; words: string; text: string }[];
}

/** Said only under a policy that has ports. */
export interface IPorts {
  kind: 'ports';
  ports: { number: number; url: string; listens: boolean }[];
}

export interface IDone {
  kind: 'done';
  id: string;
  ok: boolean;
  message: string;
}

export type HostMessage =
  | IPolicyState
  | ICell
  | ICall
  | IQuestion
  | { kind: 'answered'; id: string }
  | IFindings
  | IChanges
  | { kind: 'diff'; path: string; text: string }
  | ICheckpoints
  | IAudit
  | IPorts
  | IDone;

/** A request, without the id that `KernelComm` gives it; an answer has the question's. */
export type Request =
  | { kind: 'check'; code: string }
  | { kind: 'answer'; id: string; choice: string }
  | { kind: 'refresh'; what: string[] }
  | { kind: 'diff'; path: string }
  /** No paths means all; of what is kept, all that can be. */
  | { kind: 'keep'; digest: string; paths: string[] }
  | { kind: 'drop'; paths: string[] }
  | { kind: 'undo' }
  | { kind: 'checkpoint'; name: string }
  | { kind: 'restore'; name: string };

import { Kernel } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';
import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, randomBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { HostMessage, Request } from './protocol';

const TARGET = 'cellblock.lab';
const VERSION = 1;

/**
 * The comm to a kernel's host.
 *
 * Cells run beside the host and write to the same channels, so a message counts only if its MAC is
 * right under a secret that goes to the host alone, and if its number is above the last one's.
 * `crypto.subtle` would do this, too, but is missing where a page came over plain HTTP.
 */
export class KernelComm {
  /** Open the comm; throws if this connection to the kernel takes no comms. */
  constructor(kernel: Kernel.IKernelConnection) {
    this._comm = kernel.createComm(TARGET);
    this._comm.onMsg = message => this._take(message.content.data);
    this._comm.onClose = () => this._closed.emit();
    const secret = btoa(String.fromCharCode(...this._secret));
    this._comm.open({ version: VERSION, secret });
  }

  /** Emitted for each message that is the host's. */
  get received(): ISignal<this, HostMessage> {
    return this._received;
  }

  /** Emitted for each message that is not, and was dropped; with why. */
  get dropped(): ISignal<this, string> {
    return this._dropped;
  }

  /** Emitted when messages of the host's did not arrive, before the next one is received. */
  get missed(): ISignal<this, void> {
    return this._missed;
  }

  /** Emitted when the kernel closes the comm. */
  get closed(): ISignal<this, void> {
    return this._closed;
  }

  /** Send a request and return its id, which the reply has, too. */
  send(request: Request): string {
    const id = `${++this._sent}`;
    if (!this._comm.isDisposed) {
      this._comm.send({ id, ...request }, undefined, undefined, false);
    }
    return id;
  }

  dispose(): void {
    if (!this._comm.isDisposed) {
      this._comm.dispose();
    }
    Signal.clearData(this);
  }

  private _take(data: unknown): void {
    const { body, mac } = data as { body?: unknown; mac?: unknown };
    if (typeof body !== 'string' || mac !== this._macOf(body)) {
      this._dropped.emit('a message to this page did not come from the host');
      return;
    }
    const message = JSON.parse(body) as HostMessage & { n: number };
    if (!(message.n > this._last)) {
      this._dropped.emit('a message of the host was repeated');
      return;
    }
    const missed = message.n > this._last + 1;
    this._last = message.n;
    if (missed) {
      this._missed.emit();
    }
    this._received.emit(message);
  }

  private _macOf(body: string): string {
    return bytesToHex(hmac(sha256, this._secret, utf8ToBytes(body)));
  }

  private readonly _comm: Kernel.IComm;
  private readonly _secret = randomBytes(32);
  private readonly _received = new Signal<this, HostMessage>(this);
  private readonly _dropped = new Signal<this, string>(this);
  private readonly _missed = new Signal<this, void>(this);
  private readonly _closed = new Signal<this, void>(this);
  private _last = -1;
  private _sent = 0;
}

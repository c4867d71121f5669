import { LabIcon } from '@jupyterlab/ui-components';

const SHIELD = 'M12 1.5 4 4.5v6c0 5.3 3.4 9.9 8 11.5 4.6-1.6 8-6.2 8-11.5v-6z';

function icon(name: string, path: string): LabIcon {
  const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="${path}"/></svg>`;
  return new LabIcon({ name: `cellblock:${name}`, svgstr });
}

/** A shield with a tick: what is shown is enforced, and the host says so. */
export const verifiedIcon = icon(
  'verified',
  `${SHIELD}m-1.3 14.2-3.9-3.9 1.5-1.5 2.4 2.4 5.2-5.2 1.5 1.5z`
);

/** A shield with an exclamation mark: something is not enforced, or not known to be. */
export const unverifiedIcon = icon(
  'unverified',
  `${SHIELD}m-1.1 4.8h2.2v7h-2.2zm0 8.8h2.2v2.2h-2.2z`
);

/** A shield alone. */
export const shieldIcon = icon('shield', `${SHIELD}m0 2.1 6 2.3v4.6c0 4.2-2.5 7.8-6 9.3z`);

/**
 * A program that has moved from E2B and knows the domain alone: code, a template with files, and an
 * application. Prints what it saw.
 */
import { Sandbox, Template, waitForPort } from '@e2b/code-interpreter';

const template = Template({ fileContextPath: import.meta.dirname })
  .fromTemplate('base')
  .copy('wildcard-tls-client.ts', 'site/index.html')
  .setStartCmd('cd site && python3 -m http.server 8000', waitForPort(8000));
await Template.build(template, 'site');

const interpreter = await Sandbox.create();
const { text } = await interpreter.runCode('6 * 7');
const site = await Sandbox.create('site');
const host = site.getHost(8000);
const page = await fetch(`https://${host}/`);
const told = {
  text,
  host,
  id: site.sandboxId,
  status: page.status,
  same: (await page.text()) === (await site.files.read('site/index.html')),
  killed: [await interpreter.kill(), await site.kill()],
};
process.stdout.write(JSON.stringify(told));

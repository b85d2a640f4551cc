"""Names that are known without capitals: people, figures, places and brands, own small lists."""

from __future__ import annotations

import re

from t2x.prompts.words import words

__all__ = ["CHINESE_NAMES", "FAMOUS", "FAMOUS_PHRASES", "OTHER_NAMES", "TOWNS"]

# Names in other languages and short ones, without accents, by the one that is compared.
OTHER_NAMES = {
    "munchen": "munich", "koln": "cologne", "wien": "vienna", "roma": "rome", "rom": "rome",
    "milano": "milan", "mailand": "milan", "firenze": "florence", "florenz": "florence",
    "venezia": "venice", "venedig": "venice", "venecia": "venice", "napoli": "naples",
    "torino": "turin", "lisboa": "lisbon", "lissabon": "lisbon", "praha": "prague",
    "prag": "prague", "praga": "prague", "moskva": "moscow", "moskau": "moscow", "moscu": "moscow",
    "sevilla": "seville", "geneve": "geneva", "genf": "geneva", "bruxelles": "brussels",
    "brussel": "brussels", "warszawa": "warsaw", "warschau": "warsaw", "kobenhavn": "copenhagen",
    "kopenhagen": "copenhagen", "athen": "athens", "atenas": "athens", "peking": "beijing",
    "bombay": "mumbai", "kairo": "cairo", "tokio": "tokyo", "londres": "london",
    "nueva": "new", "nurnberg": "nuremberg", "zuerich": "zurich", "deutschland": "germany",
    "espana": "spain", "spanien": "spain", "italia": "italy", "italien": "italy",
    "frankreich": "france", "francia": "france", "japon": "japan", "nippon": "japan",
    "donau": "danube", "rhein": "rhine", "alpen": "alps", "fujisan": "fuji", "fujiyama": "fuji",
    "vw": "volkswagen", "chevy": "chevrolet", "lambo": "lamborghini", "merc": "mercedes",
    "philly": "philadelphia", "coke": "cocacola", "tour": "tower", "torre": "tower",
    "turm": "tower", "pont": "bridge", "ponte": "bridge", "puente": "bridge", "brucke": "bridge",
    "piazza": "square", "platz": "square", "plaza": "square", "monte": "mount", "mont": "mount",
    "lago": "lake", "lac": "lake", "catedral": "cathedral", "palacio": "palace",
    "chateau": "castle", "schloss": "castle", "castillo": "castle",
}  # fmt: skip

FAMOUS = words(
    """
    einstein mozart beethoven bach shakespeare napoleon cleopatra gandhi lincoln obama trump biden
    churchill hitler stalin mandela picasso monet rembrandt vermeer dali warhol kahlo hokusai
    michelangelo leonardo raphael banksy elvis beyonce madonna rihanna shakira adele messi ronaldo
    pele maradona beckham pikachu mario luigi batman superman spiderman spider-man ironman hulk thor
    yoda vader godzilla shrek gandalf frodo hogwarts voldemort dumbledore naruto goku totoro elsa
    simba bambi snoopy garfield barbie minion minions pokemon kirby zelda sonic minecraft
    paris london tokyo berlin rome madrid barcelona vienna prague amsterdam venice florence milan
    lisbon moscow kyoto osaka beijing shanghai seoul mumbai delhi cairo istanbul athens dublin
    edinburgh chicago boston seattle miami hollywood manhattan brooklyn broadway vegas sydney
    melbourne toronto vancouver rio havana dubai singapore bangkok hamburg munich cologne zurich
    geneva brussels phoenix georgia jordan cambridge oxford florence nice salzburg dresden leipzig
    marrakech casablanca jerusalem petra giza lisbon porto seville granada toledo naples pisa siena
    verona sicily tuscany provence bavaria alps andes himalayas patagonia bali phuket mykonos capri
    cuba jamaica nepal tibet vietnam thailand cambodia peru chile argentina ireland portugal belgium
    netherlands denmark poland austria hungary croatia ukraine israel iran iraq syria ethiopia
    nigeria ghana senegal madagascar philippines indonesia malaysia taiwan mongolia stockholm oslo
    copenhagen helsinki budapest warsaw krakow santorini hawaii
    california texas florida alaska france germany italy spain england scotland ireland wales japan
    china korea india brazil mexico canada australia egypt greece turkey russia norway sweden
    iceland finland switzerland austria morocco kenya africa europe asia america antarctica everest
    fuji kilimanjaro vesuvius sahara amazon nile thames seine stonehenge colosseum parthenon kremlin
    versailles alhambra nike adidas ferrari porsche lamborghini tesla bmw mercedes audi toyota honda
    volkswagen ford chevrolet harley vespa lego nasa ikea starbucks mcdonald's google apple-inc
    coca-cola pepsi rolex gucci chanel disney pixar marvel dracula frankenstein pegasus atlantis
    rapunzel cinderella tarzan zorro icarus narcissus hercules achilles apollo athena loki tintin
    asterix popeye pinocchio aladdin gulliver hamlet ophelia macbeth quixote chewbacca darwin
    galileo socrates plato aristotle newton darwin chopin vivaldi debussy cezanne matisse renoir
    degas klimt munch rothko pollock basquiat botticelli caravaggio goya velazquez hiroshige
    kandinsky chagall magritte escher bosch bruegel gaudi hitchcock kubrick spielberg chaplin zeus
    medusa poseidon odin anubis buddha
    goethe schiller bismarck luther kant nietzsche freud merkel schneewittchen koln munchen wien
    frankfurt stuttgart dusseldorf nurnberg bremen hannover basel bern innsbruck heidelberg
    neuschwanstein matterhorn zugspitze rhein elbe donau bodensee ostsee nordsee schwarzwald alpen
    cervantes quijote lorca colon sevilla cordoba malaga valencia bilbao cuzco bogota lima santiago
    frida gaudi washington houston austin dallas denver virginia victoria lincoln
    mercury nefertiti cleopatra tutankhamun andersen grimm danube jesus mars jupiter saturn venus
    neptune pluto
    """
)
TOWNS = words(
    """
    paris london tokyo berlin rome madrid barcelona vienna prague amsterdam venice florence milan
    lisbon moscow kyoto cairo istanbul athens dublin chicago boston seattle miami vegas sydney
    melbourne toronto phoenix georgia jordan cambridge oxford nice china turkey chad india brazil
    mexico canada cuba virginia carolina texas alaska lincoln washington houston austin dallas
    denver jackson madison charlotte victoria adelaide wellington
    """
)
# Names of several words that people type without capitals.
FAMOUS_PHRASES = re.compile(
    r"(?<![\w-])(?:mona lisa|charlie chaplin|taylor swift|john lennon|marilyn monroe|audrey hepburn"
    r"|david bowie|freddie mercury|michael jackson|bob marley|nikola tesla|isaac newton|albert"
    r" einstein|frida kahlo|salvador dali|van gogh|vincent van gogh|pablo picasso|claude monet"
    r"|leonardo da vinci|andy warhol|joan of arc|julius caesar|genghis khan|marco polo|anne frank"
    r"|mother teresa|princess diana|queen elizabeth|queen victoria|steve jobs|elon musk|bill gates"
    r"|edgar allan poe|jane austen|mark twain|charles dickens|oscar wilde|ernest hemingway|franz"
    r" kafka|sherlock holmes|harry potter|darth vader|luke skywalker|james bond|indiana jones|robin"
    r" hood|peter pan|snow white|mickey mouse|donald duck|bugs bunny|santa claus|super mario|hello"
    r" kitty|lara croft|king kong|moby dick|don quixote|peter rabbit|winnie the pooh|captain"
    r" america|iron man|wonder woman|optimus prime|king arthur|statue of liberty|eiffel tower|big"
    r" ben|taj mahal|machu picchu|golden gate(?: bridge)?|brooklyn bridge|times square|central park"
    r"|empire state building|mount (?:fuji|everest|rushmore|rainier|etna)|notre dame"
    r"|sagrada familia"
    r"|great wall(?: of china)?|niagara falls|grand canyon|loch ness|tower bridge|hagia sophia"
    r"|burj khalifa|stone ?henge|easter island|new york(?: city)?|los angeles|san francisco|las"
    r" vegas|hong kong|rio de janeiro|buenos aires|cape town|mexico city|new orleans|new zealand"
    r"|south korea|costa rica|sri lanka|united states|great britain|coca[- ]cola|louis vuitton|star"
    r" (?:wars|trek)|studio ghibli|rolls[- ]royce|aston martin|bruce lee|muhammad ali|barack obama"
    r"|donald trump|nelson mandela|mahatma gandhi|martin luther king|abraham lincoln|george"
    r" washington|winston churchill|elvis presley|lady gaga|lionel messi|cristiano ronaldo|greta"
    r" thunberg|stephen hawking|marie curie|ada lovelace|charles darwin)(?!\w)",
    re.IGNORECASE,
)
CHINESE_NAMES = re.compile(
    r"\u300a[^\u300b]+\u300b|(?:北京|上海|广州|深圳|香港|台北|巴黎|伦敦|东京|京都|纽约|罗马|威尼斯|长城|故宫|富士山|埃菲尔铁塔"
    r"|自由女神像|西湖|黄山|泰山|长江|黄河|李白|杜甫|孔子|孙悟空|哪吒|爱因斯坦|梵高|达芬奇|莫奈|毕加索|莎士比亚|拿破仑|牛顿|贝多芬"
    r"|莫扎特|蒙娜丽莎|皮卡丘|哆啦A梦|蝙蝠侠|超人|蜘蛛侠|成都|西安|杭州|苏州|南京|重庆|武汉|柏林|莫斯科|悉尼|巴塞罗那|金门大桥|天安门"
    r"|诸葛亮|关羽|刘备|曹操|武则天|秦始皇|杨贵妃|林黛玉|贾宝玉|鲁迅|嫦娥|张飞|岳飞|花木兰|白素贞|猪八戒|唐僧|观音|屈原|王羲之"
    r"|齐白石|成龙|李小龙|青岛|大连|厦门|桂林|昆明|丽江|拉萨|哈尔滨|敦煌|洛阳|开封|绍兴|扬州|徐州|天津|长沙|华山|峨眉山|九寨沟|张家界"
    r"|布达拉宫|莫高窟|兵马俑|颐和园|圆明园|鼓浪屿|洱海|青海湖|太湖|天山|珠穆朗玛峰|法国|日本|意大利|埃及|英国|美国|德国|俄罗斯|印度"
    r"|外滩|东方明珠|圣诞老人|哈利·波特|[\u4e00-\u9fff]{1,4}·[\u4e00-\u9fff]{1,4})"
)
